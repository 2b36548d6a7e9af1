"""Find the words that WORDS.md replaces, in the texts of the source, and name their replacements.

The texts are string constants of four words or more and of whole sentences (so each message and help text), the first
line of every docstring, and the whole docstring of a command, which click prints.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

REPLACEMENTS: dict[str, str] = {
    r"ask(s|ed|ing)?": "run, call, execute; requested",
    r"answer(s|ed|ing)?": "output, result",
    r"tell(s|ing)?|told": "report, print",
    # "The message says" is fine in prose.
    r"say|said|saying|(?<!message )says": "report, print",
    r"stated|stating": "specify, set, declare; explicit",
    # Only the verb: "hidden states" and "in another state" are nouns.
    r"(?<=to )state|(?<=not )state|(?<=can )state|(?<=should )state|(?<=[;:] )state"
    r"|^state(?= (a|an|the|its|every|each) )": "specify, set, declare",
    r"(?<![Hh]idden )(?<!of )(?<!the )(?<!its )(?<!model )states": "specify, set, declare",
    # "X stands for Y" is an abbreviation's meaning.
    r"stands?(?! for)|stood(?! for)": "is, is fixed, is in",
    r"lies|(?<!a )lie|lay": "is, is in, is stored in",
    # A path goes to or through something, a value comes from somewhere.
    r"goes(?! (to|into|through|wrong|back|from))|comes(?! from)": "is, fails, passes",
    # "What to run" and "what happened" are headings and questions.
    r"what(?! (to|happened))|what(so)?ever|whoever|somebody|nobody": "the noun: the value, the caller, the backend",
    # Not "stand-alone".
    r"(?<!-)alone": "only",
    r"beside": "next to, in addition to, adjacent to",
    # The function of that name, and a location: "the line where", "show where".
    r"(?<!np\.)(?<!torch\.)(?<!jnp\.)(?<!file )(?<!line )(?<!folder )(?<!position )(?<!index )(?<!know )(?<!show )"
    r"(?<!shows )(?<!from )where(?![=(])": "if, when",
    r"but for": "except",
    # None, the object of Python, has a capital.
    r"(is|are|has|have|of) (?-i:none)": "no …, None",
    # Between elements of a padded tensor, or between two numbers, a gap is the field's word.
    r"declared gaps?|(is|are|as|called) (a )?gaps?": "unsupported, skipped as unsupported",
    r"leans?|leaning|leaned": "bias",
    # "In place", "in place of" and "decimal places" are the field's; "Place X on a device" begins with a verb.
    r"(?<!in )(?<!in-)(?<!decimal )(?<!takes )(?<!take )(?<!^)places?": "index, position, location",
    # What a thing consists of: "made of", "made up of".
    r"made(?! (up )?of)|makers?": "built, created, computed; factory",
    # A file or a name is found, or not.
    r"(?<!not )(?<!be )(?<!file )found(?! (in|at|on) )": "detected, result",
    # "Its own process" is plain English; "an operator's own" and "of its own" are not.
    r"(?<!its )(?<!their )(?<!your )(?<!his )own|of (its|their|your|his) own": "user-defined, built-in, private",
    r"lets? (\w+ ){1,3}pass|let pass|admit(s|ted|ting)?": "accept, allow",
    r"proves? (little|nothing)|shows? (little|nothing)": "inconclusive",
    r"excuse(s|d)?|excusing": "expected, waived",
    # "The judge" of submissions keeps its name.
    r"(?<!the )judge|judge[ds]|judging": "compare, evaluate",
    r"again lines?": "reproduction command",
    r"lanes?": "worker slot",
    # "Turn X into Y" is a verb; so is "round to the nearest".
    r"(in|its|their|a|one|each|every|of|by) turns?": "iteration, repetition",
    r"(each|every|per|one|a|first|last|many|N|of|all|the) rounds?(?! (to|up|down|half|off))": "iteration, repetition",
    r"puts? off|putting off": "deferred",
    r"(give[ns]?|gave|giving|take[ns]?|took|taking) back": "released, reverted",
    # A text's typeface and Hugging Face keep their word.
    r"the house|guests?|(?<!hugging )faces?": "the package, an integration, an interface",
}
WORDS = [
    (re.compile(rf"(?<![\w-])(?:{word})(?!\w)", re.IGNORECASE), replacement)
    for word, replacement in REPLACEMENTS.items()
]
# Plain English or the field's language that contains one of the words.
KEPT = re.compile(
    r"\b(if|or|because) (there|it|they|the pool|the operator|torch|[\w ]+ of torch) (is|are|has|have) none\b( yet)?"
    r"|if none of\b|is none of\b"
    # Definitions by cases, and elements of an array that fulfil a condition.
    r"|\b(NaN|True|true|False|0|1|x|input|accurate|zeros|numbers?|accepted|above|matches|negative|positive|infinit\w+"
    r"|max|there|[a-z]\w*\)|\d[\d.]*\)?|Return|values|elements?|mask|differs?|everywhere) where\b"
    r"|, where (any|initial_states|elements|exp|it|floor|no|scale|t|they|x|NaN|its|torch)\b"
    r"|where (possible|they are|the mask)\b"
    r"|\bof where\b|, where and\b|\(?Where[:(]|\bslice_scatter where\b|\brelu sigmoid where\b"
    # States of a scan or of a random generator.
    r"|\b(batch x dim x|dim,|over|with which|final|random|last|P\[batch, dim,|all|their) states\b"
    r"|\bstates\]|\bstates: bool\b|\bstates have no error\b|\bx states\b|\bover states\b"
    # Units in the last place, and a path that goes on.
    r"|[Uu]nits? in the last place|in its place|out of place|at random places|\bgoes on\b|\bcomes first\b"
    r"|\bwhat (is wrong|changed|was|is|it|happens?|[\w ]*roundings?|cutting operands|(the )?header|batch elements)\b"
    r"|\bown (calls|mask|infinite|code|process|dtype|samples|tests|checks)\b|\b(Python|torch|model)'s own\b"
    r"|\bof your own\b|\bcalls made while\b|\} where negative\b|\} where the size\b"
    r"|\b(calls?|checks?|conversions?|copies) (was|were|that were) made\b|\bmade (no call|before|after)\b"
    r"|\bas it was found\b|\bfound (another|for operations)\b|no \w+( \w+)? (was )?found\b"
)
CODE = re.compile(r"``.*?``|:\w+:`.*?`|`[^`\n]*`", re.DOTALL)
SENTENCE = re.compile(r"[A-Z]\S*( \S+)*[.!?]")


@dataclass(frozen=True)
class Text:
    """A docstring or a string constant of a file."""

    line: int
    text: str


@dataclass(frozen=True)
class Hit:
    """An occurrence of a word that has a replacement."""

    file: Path
    line: int
    word: str
    replacement: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.word} → {self.replacement}: {self.text}"


def hits(file: Path, nodes: Iterable[ast.AST]) -> Iterator[Hit]:
    """Yield each occurrence of a word in the texts of ``file``, whose syntax tree has these nodes."""
    for text in texts(nodes):
        prose = text.text
        for skipped in (CODE, KEPT):
            prose = skipped.sub(lambda part: re.sub(r"[^\n]", "`", part.group()), prose)
        for word, replacement in WORDS:
            for match in word.finditer(prose):
                before = prose.count("\n", 0, match.start())
                shown = text.text.splitlines()[before].strip()
                yield Hit(file, text.line + before, match.group(), replacement, shown)


def texts(nodes: Iterable[ast.AST]) -> Iterator[Text]:
    """Yield the texts of a file: first lines of docstrings, docstrings of commands, messages and help texts."""
    docstrings: set[int] = set()
    parts: set[int] = set()
    # Parents come first, so docstrings and parts of f-strings are known before they are reached.
    for node in nodes:
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and _is_text(statement.value):
                docstrings.add(id(statement.value))
                yield _docstring(node, statement)
        if isinstance(node, ast.JoinedStr):
            parts |= {id(part) for part in node.values}
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and _is_text(node) and id(node) not in docstrings and id(node) not in parts:
            text = str(node.value)
        else:
            continue
        if len(text.split()) >= 4 or SENTENCE.fullmatch(text):
            yield Text(node.lineno, text)


def _docstring(owner: ast.AST, statement: ast.Expr) -> Text:
    """Return the first line of a docstring; all of it if it is the help text of a command."""
    text = ast.literal_eval(statement.value)
    decorators = [ast.unparse(decorator) for decorator in getattr(owner, "decorator_list", ())]
    if any(re.match(r"(\w+\.)?(command|group)\(", decorator) for decorator in decorators):
        return Text(statement.lineno, text)
    return Text(statement.lineno, text.lstrip().partition("\n")[0])


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
