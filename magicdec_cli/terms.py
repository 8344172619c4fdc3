"""What every shown number means: one table for `magicdec terms`, `run --help` and the TUI."""

from __future__ import annotations

TERMS: dict[str, str] = {
    "B": "rows decoded together (--batch)",
    "context": "prompt tokens of a row, all of them in the full KV cache",
    "γ": "draft length: tokens drafted per step (--gamma)",
    "budget": "prompt KV entries a draft step may read (--budget)",
    "T": "temperature of the sampling; greedy at 0 (--temperature)",
    "memory": "forecast of what the run allocates",
    "selector": "the rule that chooses those entries (--selector)",
    "step": "draft γ tokens over the selected entries, verify them in one pass over the full cache",
    "drafted": "draft tokens that were proposed and verified",
    "accepted": "draft tokens that passed verification",
    "recovered": "the token the target draws where it rejected a draft token",
    "bonus": "the token the target adds when it accepted the whole draft",
    "num_spec_steps": "steps that verified a draft, counted per row",
    "acceptance rate": "accepted / drafted; `now` is that of the last 20 steps",
    "mean length": "mean acceptance length: 1 + accepted / num_spec_steps (recovered or bonus "
    "token counted)",
    "by position": "of the steps that drafted position 1, 2, ...: the share in which it was "
    "accepted, and so all before it; rows near their end draft fewer",
    "accepted per step": "how many of those steps accepted exactly 0, 1, ... draft tokens",
    "prefill": "seconds from the first prompt token to the first generated token of the rows",
    "reused": "prompt tokens whose KV was copied instead of computed: from another row that begins "
    "alike, from the run before, or from the prefill cache on disk",
    "select": "seconds choosing and copying the draft's KV entries",
    "draft": "seconds in draft passes",
    "verify": "seconds in passes over the full cache (all passes of plain decoding)",
    "commit": "seconds accepting tokens and writing both caches",
    "other": "the rest of the wall time; the phases sum to it",
    "ms/step": "a phase's milliseconds divided by the batch's steps",
    "decode": "everything after prefill; its tokens are those that steps emitted, so not the first "
    "of each row",
    "tokens/s": "decode tokens of all rows / decode seconds",
    "TPOT": "time per output token: a row's time after its first token / its tokens after it, "
    "mean over rows",
    "KV read": "KV entries one draft step reads per row, on average",
    "speedup, decode": "decode seconds of plain decoding / those of speculative decoding, for the "
    "same rows and number of tokens",
    "speedup, end to end": "the same with the prefill added to both sides; the plain run does it, "
    "the other reuses it",
    "predicted": "the decode speedup that this machine's calibration (`magicdec calibrate`) gives "
    "for the run, before it: from the acceptance seen while calibrating, selection included",
    "error": "predicted / measured speedup - 1; `with the run's own acceptance` leaves only the "
    "times to be wrong. The sentence below names the part that most of it comes from",
    "calibration": "constants of the cost model fitted to timed steps on this machine; it holds "
    "for one model, precision, device, number of threads and version, and is stale for others",
    "lossless": "greedy: the speculative tokens equal plain decoding's; a difference is a tie when "
    "the logits of the two tokens are closer than the precision's rounding, else it is a failure",
}
