"""`fern quest`: the experiments, each a command."""

import click

from e2e.quest.sms import main as sms

quest = click.Group(
    "quest", commands={"sms": sms}, help="Other designs and ours, side by side, against the same faults."
)

if __name__ == "__main__":
    quest(prog_name="fern quest")
