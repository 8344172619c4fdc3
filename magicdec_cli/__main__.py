"""`python -m magicdec.cli`."""

from magicdec.cli.main import main

main()
