"""What every shown number means: one table for `magicdec terms`, the help pages and the TUI."""

from __future__ import annotations

RUN_TERMS: dict[str, str] = {
    "B": "rows decoded together (--batch)",
    "context": "prompt tokens of a row, all of them in the full KV cache",
    "γ": "draft length: tokens drafted per step (--gamma)",
    "γ auto, schedule": "γ chosen before each step: the one that decodes what is left soonest, by "
    "the calibration or the run's own step times and its acceptance so far; or from a file by "
    "rows and context. Mean γ counts plain steps, and rows near their end draft less",
    "γ adaptive": "a row's draft ends once the product of the draft's own probabilities of its "
    "tokens is below the share of a draft step in the time of a token",
    "budget": "prompt KV entries a draft step may read (--budget)",
    "T": "temperature of the sampling; greedy at 0 (--temperature)",
    "penalties": "what makes tokens of the row's own text less likely, draft tokens before a "
    "position included, so that the text stays plain decoding's: repetition (logits of tokens of "
    "prompt or output are divided if positive, else multiplied, as in transformers), frequency "
    "and presence (of the output alone: subtracted for each time, and once, as in OpenAI's "
    "interface and vLLM). In this order, before temperature; the draft has them, too. What a "
    "model's generation_config.json asks for is named, not applied",
    "memory": "forecast of what the run allocates",
    "selector": "the rule that chooses those entries (--selector)",
    "static, dynamic": "a selector chooses once per row, after its prefill; or again in every "
    "draft step (topk, quest, pqcache) or after verify passes (reuse)",
    "selector's index": "what a dynamic selector keeps about all keys: pages' extremes, codes and "
    "codebooks",
    "search": "what a selector reads to choose, in tokens' K and V per cached token: once, when a "
    "row is admitted; per_draft, in every draft step; per_verify, after every verify pass",
    "step": "draft γ tokens over the selected entries, verify them in one pass over the full cache",
    "self, lookup, layers:N": "who drafts (--draft): the model itself; what followed a row's last "
    "words before; the model's first N layers and its head. Else the name of another model",
    "tree": "several draft tokens for a position (--tree), γ positions deep, --tree-nodes tokens "
    "at most; one pass verifies them all, and the target takes one branch or its beginning",
    "cascade": "lookup+self, layers:N+self or MODEL+self (--draft): the first drafts for the self-"
    "draft, which verifies that over its selected entries and so drafts several tokens in a pass. "
    "`inner drafts` are those that it judged",
    "drafted": "draft tokens that were proposed and verified, without those that are cut off",
    "accepted": "draft tokens that passed verification and were emitted",
    "cut off": "num_cut_draft_tokens: draft tokens past a row's end, behind an accepted end of "
    "text or stop; neither accepted nor rejected (of a tree: generations). What chooses γ does not "
    "see them, either",
    "rejected": "draft tokens that the target did not take: the first that it would not have said, "
    "and all behind it",
    "recovered": "the token the target draws where it rejected a draft token",
    "bonus": "the token the target adds when it accepted the whole draft",
    "row steps": "num_spec_steps: steps that verified a draft, counted per row; `steps` beside "
    "tokens and times are those of the whole batch, plain ones included",
    "acceptance rate": "accepted / drafted; `now` is that of the last 20 steps. In a tree most of "
    "the drafted tokens lie beside the branch that is taken: mean length tells what it gains",
    "mean length": "mean acceptance length: tokens that a row gains in a step, the recovered or "
    "bonus token counted: 1 + accepted / row steps, less where rows end inside a draft",
    "by position": "of the row steps that drafted position 1, 2, ...: the share in which it was "
    "accepted, and so all before it; rows near their end draft fewer. vLLM divides by all drafts: "
    "acceptance_rate_per_position_of_all_drafts in --json",
    "accepted per step": "how many of those steps accepted exactly 0, 1, ... draft tokens",
    "by child": "in a tree, where the target tried a first, second, ... child of a node: how often "
    "it was accepted",
    "load": "seconds preparing, before the first prompt, what the process then keeps: weights and "
    "kernels, which both runs need, and of a draft its int8 weights or its model; and the run's "
    "caches. A later run of the same process finds it there",
    "prefill": "seconds from the first prompt token to the first generated token of the rows",
    "reused": "prompt tokens whose KV was copied instead of computed: from another row that begins "
    "alike, from the run before, or from the prefill cache on disk",
    "select": "seconds choosing and copying the draft's KV entries",
    "draft": "seconds in draft passes, a draft model's own prefill included",
    "verify": "seconds in passes over the full cache (all passes of plain decoding)",
    "commit": "seconds accepting tokens and writing both caches",
    "other": "the rest of the wall time; the phases sum to it",
    "ms/step": "a phase's milliseconds divided by the batch's steps, the selection that comes once "
    "per row included; those of the phases sum to a step's, and their shares are of that",
    "decode": "everything after load and prefill; its tokens are those that steps emitted, so not "
    "the first of each row",
    "tokens/s": "decode tokens of all rows / decode seconds",
    "TPOT": "time per output token: seconds from a row's first token to its last, selection and "
    "waiting for newcomers included / tokens after the first; mean over rows. A row that is done "
    "before the batch stops counting, so TPOT may gain more than the decode speedup",
    "KV read": "KV entries one draft step reads per row, on average",
    "speedup, decode": "decode seconds of plain decoding / those of speculative decoding, for the "
    "same rows and number of tokens",
    "speedup, end to end": "the same with load and prefill: what the plain run loads and prefills "
    "counts on both sides, because the other reuses it; what the speculative run loads besides, "
    "its draft's weights, on its own",
    "by turn": "with --compare plain and speculative decoding take turns of some steps over the "
    "same rows, so that both meet the same machine; the decode speedup is that of all turns. The "
    "range is of what single turns would have shown, by their steps' times beside the usual ones "
    "of as many rows and draft tokens: the machine's doing, not the text's",
    "disturbed": "steps of one kind took more than 1.25 times their median at the 90th percentile "
    "(1.12 at most on an idle machine), or other programs more than 10% of the CPUs while rows "
    "were decoded (in the app: than the app and its engine): times and speedups are then not to "
    "be trusted. Tables mark them with a question mark, files hold what was seen",
    "predicted": "the decode speedup that the cost model gives before a run, T_T * length / (γ * "
    "T_D + T_V + the rest): T_D one draft step, T_V one verify pass, length the tokens per step "
    "that acceptance gives, 1 + a1 + a1*a2 + ... with the conditional acceptance a_i of each "
    "position. `run` takes costs, acceptance and selection from this machine's calibration "
    "(`magicdec calibrate`); the app leaves the one-off selection out until a run has shown it, "
    "and takes acceptance from its own runs, once there are any",
    "error": "predicted / measured speedup - 1; `with the run's own acceptance` leaves only the "
    "times to be wrong. The sentence below names the part that most of it comes from",
    "calibration": "constants of the cost model fitted to timed steps on this machine; it holds "
    "for one model, precision, machine, number of threads and version, and is stale for others",
    "weights": "eight digits that name what a model's weights and specification say, wherever "
    "their files lie and whatever they are called; two models of one name differ in them",
    "ruler:TASK": "a text made to the length of --context, after RULER (arXiv 2404.06654). "
    "--context is the prompt, RULER's lengths include the answer (128 tokens of niah, 120 of cwe, "
    "32 of qa). cwe: common words occur 30 times and others 3, from 3,976 tokens on, else 6 and 1, "
    "as in RULER, but without its solved example and with made-up words. niah: 4 needles between "
    "sentences, at 4 of 40 depths, as in RULER, but in Python's language reference or a text of "
    "yours. qa: made-up biographies for SQuAD's paragraphs. In records from before December 2026 "
    "cwe is easier (25 and 2 at 4,000 tokens) and needles may break a sentence",
    "lossless": "greedy: the speculative tokens equal plain decoding's; a difference is a tie when "
    "the logits of the two tokens are closer than the precision's rounding, else it is a failure; "
    "nothing is compared that comes of damaged weights, or of logits that are not finite numbers",
}

PREDICT_TERMS: dict[str, str] = {
    "α": "acceptance: how often a draft token is accepted when all before it in its step were",
    "Ω": "tokens a row gains per step, as the acceptance lets expect: 1 + α + ... + α^γ, or the "
    "like of rates by position; the mean length of a run is a little less, because rows near their "
    "end draft fewer",
    "T_T": "one step of plain decoding",
    "T_D": "one draft step, the selection in it included",
    "T_V": "one verify pass over the full cache, γ + 1 tokens per row",
    "bound": "what takes most of T_T, T_D, T_V: reading weights or KV, compute, or overhead",
    "rest of a step": "what a speculative step takes besides its passes: acceptance, bookkeeping",
    "needs Ω": "break-even acceptance length: (γ T_D + T_V + rest) / T_T; speculation pays above",
    "α for 1×": "the α that breaks even at this γ, or brings the --target-speedup; - where none "
    "does",
    "TPOT, predicted": "time per output token of a row: (γ T_D + T_V + rest) / Ω",
    "tokens/s, predicted": "of all rows: B / TPOT",
    "speedup, predicted": "T_T / TPOT",
    "growth threshold": "the context beyond which speedup rises with the batch: at large batches "
    "γ (T_T - T_D) > T_V - T_T there",
    "break-even context": "the context beyond which speedup is above 1 at large batches",
    "largest B": "the most rows whose weights and KV fit, a reserve of memory kept free",
    "plain, standard, sparse self": "no draft; a draft model with its full KV cache; the model "
    "drafting for itself over the budget",
}

PROFILE_TERMS: dict[str, str] = {
    "cell": "one setting of a profile: batch, context, drafter, γ, temperature",
    "drafter": "who drafts (--draft) over what: selector, its options, budget, tree; what a "
    "drafter has no use for is left out",
    "identity": "of a model, by what its weights say; of a document, the SHA-256 of its text; of a "
    "schedule, six digits behind its name. A profile goes on only with what it began with",
    "repeat": "one plain and one speculative pass over the same rows, in turn; both warmed up, "
    "and each starts from the bare prompts with a new draft cache",
    "failed": "a cell that gave no figures: its error says why; recording again tries it anew",
    "speedup of a cell": "median over its repeats of plain / speculative decode seconds, for the "
    "same number of tokens",
    "γ of a cell": "as it was given; of one that changes (auto, adaptive, a schedule) the mean "
    "over all steps of the rows and the most, 2.3 of 8, or up to 8 where only that is known",
    "best measured": "of all drafters and γ that were tried there: of several noisy figures the "
    "best looks a little better than it is",
    "mean error, bias": "of predicted / measured speedup - 1: the mean of its size, and the mean "
    "with its sign",
    "A, B, B/A": "a figure's median over the repeats of the first and of the second profile, "
    "and their ratio",
    "p": "how likely a difference like this is between equal profiles: Welch's t-test on the "
    "repeats, adjusted for the number of cells (Holm)",
    "within noise": "p is .05 or more: the repeats do not tell the two apart",
    "not testable": "a side has one repeat, or repeats without any spread",
    "time per token": "what γ is chosen by: (γ T_D + T_V) / (Ω T_T), or 1 / the measured speedup",
}

SURVEY_TERMS: dict[str, str] = {
    "survey": "the rows are decoded once; each drafter then reads that text, and where it "
    "would have drafted another token decides how speculation would have gone, for every γ",
    "α, surveyed": "the share of all tokens that the drafter would have drafted right",
    "Ω, surveyed": "the mean length a run with this γ and number of tokens would show",
    "±": "how far the 95% confidence interval of Ω reaches, the widest of those shown: by "
    "jackknife over rows with Student's t, within 1 and γ + 1; rows cut from one document are more "
    "alike than it knows, and one row has none",
}

TUNE_TERMS: dict[str, str] = {
    "95%": "interval of the surveyed Ω, over rows",
    "range": "the speedups of the slowest and the fastest round",
    "~": "predicted, not run",
    "predicted, tuned": "decode seconds of plain decoding / those of the setting, from the "
    "survey's acceptance and the calibration's step times, the one-off selection and slower rows "
    "included",
    "measured, tuned": "the same from real runs of the same rows: median over the rounds. The "
    "reason below the table of what ran has the figures of those runs, means per step",
    "needs, gets": "tokens of a step, in tokens of a plain step, at which speculation breaks even, "
    "and those that it gives: Ω, or less where some rows of a run end before others",
    "map": "speedup of the best draft of each place: that of the runs where drafts ran, elsewhere "
    "predicted at their step times and scaled by what the runs reached of such predictions",
    "≈": "no worse than the best beyond chance: rows (predicted) or rounds (measured) disagree",
    "proven": "faster than the plain run of the same round in every round",
    "!": "does not fit in memory",
}

#: What only the terminal app shows.
APP_TERMS: dict[str, str] = {
    "plain step": "T_T: milliseconds of a step of plain decoding, the same rows",
    "gap": "measured / predicted - 1",
    "± of a speedup": "95% half-width: 1.96 times the standard error of the ratio, from how "
    "seconds and tokens vary from step to step; it knows nothing of a machine that was slower in "
    "one run",
    "break-even length": "mean length / measured speedup: with fewer tokens per row and step than "
    "this, plain decoding is faster",
    "pinned": "the run that others are compared with; c pins the one that is shown",
    "vs pinned": "tokens/s of a run / those of the pinned run",
    "memory needed": "weights and caches of the next run, of what is free; what a pass needs "
    "besides is left out",
    "draft weights": "same: the model's own; int8: a quantised twin drafts, the model verifies; "
    "auto: int8 where it drafts faster (--draft-weights)",
    "nodes": "tokens of a tree at most (--tree-nodes); the knob is there while a tree is chosen",
    "new tokens": "tokens each row generates at most (--max-new-tokens)",
    "step, predicted": "γ * T_D + T_V + the rest, in milliseconds, beside a plain step T_T. Once a "
    "run has finished, by its step times, selection and rows that end before others included: of "
    "the run's own settings the preview is what was measured",
    "curve": "predicted speedup at each value of the chosen knob, the others as they are set; a "
    "point is a finished run's measured speedup",
    "rough": "costs of a generic machine, because this one is not calibrated",
    "assumed": "an acceptance of .80 at every position, until a run with the same selector, draft "
    "weights and sampling has measured it; of layers:N none is: early exits of a model that was "
    "not trained for them are accepted next to never",
}

TERMS = APP_TERMS | RUN_TERMS | PREDICT_TERMS | PROFILE_TERMS | SURVEY_TERMS | TUNE_TERMS
