"""Starts the app, and ends the engine when it is over."""

from __future__ import annotations

from collections.abc import Sequence

from magicdec.cli import interrupts
from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.app import TuningApp
from magicdec.cli.tui.driver import terminal_driver
from magicdec.cli.tui.process.link import Link, ProcessLink
from magicdec.cli.tui.session_log import SessionLog, log_path
from magicdec.engine.errors import ConfigError


def launch(
    sources: Sequence[str], settings: Settings, *, demo: bool, ascii: bool, theme: str | None
) -> int:
    """The exit code, when the app has been left. Raises ConfigError for an unknown theme."""
    link: Link
    if demo:
        from magicdec.cli.tui.process.replay import Replay, demo_file

        link, log = Replay(demo_file()), None
    else:
        link, log = ProcessLink(), SessionLog(log_path())
    app = TuningApp(
        link, sources, settings, log=log, ascii=ascii, demo=demo, driver=terminal_driver()
    )
    if theme is not None:
        if theme not in app.available_themes:
            known = ", ".join(sorted(app.available_themes))
            raise ConfigError(f"no theme is called {theme!r}; choose from {known}")
        app.theme = theme
    try:
        app.run()
    finally:
        interrupts.hold()  # the engine is ended and the log closed first
        link.close()
        if log is not None:
            log.close()
    return app.return_code or 0
