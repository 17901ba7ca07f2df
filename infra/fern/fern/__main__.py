"""`python -m fern`, where the `fern` script is not installed: in the image of the local tools."""

from fern.cli import main

main(prog_name="fern")
