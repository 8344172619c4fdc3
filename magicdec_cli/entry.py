"""Where the `magicdec` command begins: Ctrl-C is taken care of before anything else is imported."""

from magicdec.cli import interrupts


def main() -> None:
    """Runs the command line and exits."""
    interrupts.exit_at_once()
    from magicdec.cli.main import main as run

    run()
