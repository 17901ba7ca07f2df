"""What a migration must not do while processes of the release before run, and where it would lock a big table for long."""

import ast
import re

# Each pattern, and what to do instead. `{0}` is the table that an index is for.
RULES = {
    r"\bDROP (COLUMN|TABLE|INDEX)\b": "drop it in the release after, when no process uses it",
    r"\bRENAME\b": "add the new name, write both, and drop the old one in the release after",
    r"\bSET NOT NULL\b": "add a CHECK that is NOT VALID, and validate it apart",
    r"\bALTER COLUMN \w+ (SET DATA )?TYPE\b": "add a column of the new type",
    r"\bADD COLUMN (IF NOT EXISTS )?\w+ [^,]*\bNOT NULL(?![^,]*\bDEFAULT\b)": "give it a default",
    r"\bADD CONSTRAINT\b(?!.*\bNOT VALID\b)": "use replace_check",
    r"^\s*(UPDATE|DELETE)\b": "use backfill",
}
_INDEX = re.compile(r"\bCREATE (?:UNIQUE )?INDEX (?!CONCURRENTLY)(?:IF NOT EXISTS )?\w+ ON (\w+)")
_NEW_TABLE = re.compile(r"\bCREATE TABLE (?:IF NOT EXISTS )?(\w+)")


def problems(source: str) -> list[str]:
    """Statements that break a rule. A statement is exempt if the line before it, or its first line, has a comment `# contract: …`
    that says why it is safe.
    """
    lines, found = source.splitlines(), list[str]()
    new_tables = set(_NEW_TABLE.findall(source))
    for call in ast.walk(ast.parse(source)):
        if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "op.execute"):
            continue
        if any("# contract: " in line for line in lines[max(call.lineno - 2, 0) : call.lineno]):
            continue
        statement = " ".join(
            one.value for one in ast.walk(call) if isinstance(one, ast.Constant) and isinstance(one.value, str)
        )
        for pattern, instead in RULES.items():
            if match := re.search(pattern, " ".join(statement.split()), re.IGNORECASE):
                found.append(f"line {call.lineno}: {match[0]}: {instead}")
        if (index := _INDEX.search(statement)) and index[1] not in new_tables:
            found.append(f"line {call.lineno}: an index on {index[1]}: use create_index")
    return found
