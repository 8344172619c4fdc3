"""`magicdec run`."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from magicdec.cli.interrupts import INTERRUPTED, before_exit, finished
from magicdec.cli.output.console import TERMINAL, one_line
from magicdec.cli.settings.unused import refuse_unused
from magicdec.engine.config import DecodeConfig
from magicdec.engine.errors import MagicdecError, WrongWeightsError, require


class LosslessnessError(MagicdecError):
    """Speculative decoding gave other tokens than plain decoding, and it was not a tie."""

    exit_code = 4


EPILOG = (
    "Every option can also be set in the environment (--max-new-tokens as "
    "MAGICDEC_MAX_NEW_TOKENS) and in ./magicdec.toml or the user's config.toml "
    "(max-new-tokens = 64); `magicdec config show` names the source of each value."
)


def run(
    docs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DOC...",
            help="Text files, - for stdin, builtin:pydoc, or a generated task: "
            "ruler:niah-multikey, ruler:cwe, ruler:qa.",
            show_default=False,
        ),
    ] = None,
    *,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Decode the same rows plainly first; report speedup and losslessness.",
            rich_help_panel="Output",
        ),
    ] = False,
    json: Annotated[
        bool,
        typer.Option("--json", help="Write one JSON document to stdout.", rich_help_panel="Output"),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Show no progress.", rich_help_panel="Output"),
    ] = False,
    flags: dict[str, Any],
) -> int | None:
    """Continue long documents, drafting over a sparse part of the KV cache.

    The output is exactly plain decoding's: every draft is verified over the whole cache.
    """
    from magicdec.cli.settings.resolve import resolve

    settings = resolve(flags).settings
    _check(settings.decode_config(), compare)
    refuse_unused(flags, lambda name: (getattr(settings, name),), docs or [])

    # From here on imports cost tenths of seconds; what can be refused was refused before.
    from magicdec.cli.output.progress import choose_display
    from magicdec.cli.run.session import Outcome, run_session

    outcome = Outcome(settings, compare)
    display = choose_display(quiet)
    before_exit(display.close)
    try:
        if not finished(lambda: run_session(outcome, docs or [], display)):
            outcome.interrupted = True  # outside of the passes' own handler
    finally:
        display.close()
    return _deliver(outcome, json)


def _check(config: DecodeConfig, compare: bool) -> None:
    """Everything that can be known to fail without a model. Raises ConfigError."""
    from magicdec.engine.selection import SELECTORS, draft_selector

    require(
        not compare or config.gamma > 0,
        "--compare with gamma 0 would compare plain decoding with itself; add --gamma 3",
    )
    require(
        config.tree == "none" or config.gamma > 0,
        "gamma 0 drafts no tree; give --gamma 3, the most generations of it, or leave --tree out",
    )
    SELECTORS.create(config.selector, config.selector_options)
    if config.reads_cache:
        draft_selector(config)


def _deliver(outcome: Any, json: bool) -> int | None:
    from magicdec.cli.run.session import Outcome
    from magicdec.profiles.recorded.run_record import run_record

    assert isinstance(outcome, Outcome)
    if isinstance(outcome.error, WrongWeightsError):  # no text of theirs is worth showing
        raise outcome.error
    if outcome.error is not None and not outcome.decoded:
        raise outcome.error
    for warning in outcome.warnings:
        TERMINAL.note(f"warning: {warning}")
    if json:
        from magicdec.cli.output.tables import print_json
        from magicdec.cli.run.prediction import record

        config = dataclasses.asdict(outcome.settings)
        print_json(
            run_record(
                outcome.report, env=outcome.env, config=config, interrupted=outcome.interrupted,
                error=None if outcome.error is None else one_line(outcome.error),
                warnings=outcome.warnings, baseline=outcome.baseline, lossless=outcome.lossless,
                steadiness=outcome.steadiness,
                predicted=record(outcome.prediction, outcome.judged),
                gamma={
                    "policy": outcome.policy.name, "most": outcome.settings.gamma,
                    "source": outcome.policy.source or None, "stop": outcome.policy.stop,
                },
            )
        )  # fmt: skip
    elif outcome.decoded or not outcome.interrupted:
        from magicdec.cli.run.report import print_report

        print_report(TERMINAL.out, outcome)
    if outcome.interrupted:
        kept = "what was finished is above" if outcome.decoded else "nothing was decoded yet"
        TERMINAL.note(f"interrupted: {kept}")
        return INTERRUPTED
    if outcome.error is not None:
        raise outcome.error
    verdict = outcome.lossless
    if verdict is not None and not verdict.ok:
        raise LosslessnessError(
            "speculative and plain decoding differ by more than rounding; "
            "please report it with the output of --json"
        )
    return None
