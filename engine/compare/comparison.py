"""Plain and speculative decoding of the same rows, measured beside each other."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace

from magicdec.engine.compare.turns import block_tokens, pause, take_turns
from magicdec.engine.config import DecodeConfig
from magicdec.engine.draft_spec import LOOKUP
from magicdec.engine.events import Event
from magicdec.engine.request import Request
from magicdec.engine.selection import draft_selector
from magicdec.engine.session import Session


def compare(
    session: Session, requests: Sequence[Request], config: DecodeConfig, *, batch: int
) -> Generator[tuple[bool, Event], None, None]:
    """Each event, and whether it is the speculative run's. The two take turns of some steps, see
    `turns`; they run one after the other where rows wait for slots, whose prompts the two would
    not share, and where memory is short.

    Raises what `Session.run` raises.
    """
    # The first run prefills with all that the second one wants to see of a prompt.
    observed = 0 if config.draft == LOOKUP else draft_selector(config).observed
    runs = [
        session.run(requests, settings, batch=batch, observed=observed)
        for settings in (replace(config, gamma=0), config)
    ]
    shared = len(requests) <= batch and _has_room_to_wait(session, requests, config)
    block = block_tokens(len(requests), config.max_new_tokens) if shared else math.inf
    for number, event in take_turns(runs, block, lambda: pause(session.cache, session.clock)):
        yield number == 1, event


def _has_room_to_wait(session: Session, requests: Sequence[Request], config: DecodeConfig) -> bool:
    """For what the rows of a run that waits hold behind their prompts."""
    entry = session.spec.kv_bytes_per_token(session.kv_dtype.itemsize)
    longest = max(len(request.tokens) for request in requests)
    need = session.forecast(config, batch=len(requests), context=longest)
    return need.total + len(requests) * config.max_new_tokens * entry <= need.available
