"""Reads PTX: the entries of a module, their instructions, labels, parameters and shared memory.

Source: NVIDIA, "Parallel Thread Execution ISA", version 9. Only what NVRTC makes of the kernels is read; anything else
is refused, so that nothing is misunderstood silently.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple


class Instruction(NamedTuple):
    """One instruction: ``@!%p1 ld.global.v2.u64 {%rd1, %rd2}, [%rd3+16];``.

    guard: the predicate register and whether it is negated, or None. parts: the opcode at its dots.
    """

    parts: tuple[str, ...]
    operands: tuple[str, ...]
    guard: tuple[str, bool] | None
    text: str


@dataclass(frozen=True, eq=False)
class Entry:
    """A kernel. params: name -> (offset in the parameters, bytes). shared: name -> offset in shared memory."""

    name: str
    params: dict[str, tuple[int, int]]
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    registers: dict[str, int]
    shared: dict[str, int]
    shared_nbytes: int

    @property
    def has_barrier(self) -> bool:
        """Whether threads of a block wait for each other."""
        return any(one.parts[0] in ("bar", "barrier") for one in self.instructions)


_VARIABLE = re.compile(r"\.shared\s+(?:\.align\s+(\d+)\s+)?\.[busf](\d+)\s+([\w$]+)(\[\d*\])?\s*;")
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.[busf](\d+)\s+(?:\.ptr\s+)?(?:\.align\s+\d+\s+)?(\w+)(?:\[(\d+)\])?"
)
_SPECIAL = {"%tid", "%ntid", "%ctaid", "%nctaid", "%laneid"}
_LABEL = re.compile(r"([$\w]+):")


def entries(ptx: str) -> dict[str, Entry]:
    """The kernels of a module, by name."""
    text = re.sub(r"//[^\n]*|/\*[\s\S]*?\*/", "", ptx)
    found = {}
    for head in re.finditer(r"\.entry\s+(\w+)\s*\(([^)]*)\)[^{]*\{", text):
        body = text[head.end() : _closing(text, head.end())]
        found[head[1]] = _entry(head[1], head[2], body, text)
    return found


def _closing(text: str, start: int) -> int:
    depth = 1
    for brace in re.finditer(r"[{}]", text[start:]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return start + brace.start()
    raise SyntaxError("a brace is not closed")


def _entry(name: str, params: str, body: str, module: str) -> Entry:
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for statement in _statements(body):
        rest = statement
        while label := _LABEL.match(rest):
            labels[label[1]] = len(instructions)
            rest = rest[label.end() :].strip()
        if rest and not rest.startswith("."):
            instructions.append(_instruction(rest))
        elif rest.startswith((".local", ".extern", ".branchtargets", ".const")):
            raise SyntaxError(f"{name}: {rest}")
    words = {word for one in instructions for word in re.findall(r"%\w+", one.text)}
    registers = sorted(word for word in words if word not in _SPECIAL)
    # Shared arrays of the module belong to the entries that name them.
    shared, size = _packed([v for v in _VARIABLE.findall(module) if re.search(rf"\b{re.escape(v[2])}\b", body)])
    return Entry(
        name,
        _laid_out(_PARAM.findall(params)),
        tuple(instructions),
        labels,
        {register: i for i, register in enumerate(registers)},
        shared,
        size,
    )


def _statements(body: str) -> list[str]:
    """Statements end with a semicolon; braces that stand alone are scopes of inline assembly, others hold vectors."""
    lines = (line.strip() for line in body.splitlines())
    joined = " ".join(line for line in lines if line not in ("{", "}", ""))
    return [statement.strip() for statement in joined.split(";")]


def _instruction(text: str) -> Instruction:
    guard = re.match(r"@(!?)(%\w+)\s+", text)
    rest = text[guard.end() :] if guard else text
    opcode, _, operands = rest.partition(" ") if " " in rest.split("\t")[0] else rest.partition("\t")
    split = re.split(r",\s*(?![^{\[]*[}\]])", operands.strip()) if operands.strip() else []
    return Instruction(
        tuple(opcode.split(".")),
        tuple(one.strip() for one in split),
        (guard[2], bool(guard[1])) if guard else None,
        text,
    )


def _packed(variables: list[tuple[str, str, str, str]]) -> tuple[dict[str, int], int]:
    end = 0
    starts = {}
    # An array without a size is what the launch gives besides, behind everything else.
    for align, bits, name, count in sorted(dict.fromkeys(variables), key=lambda variable: variable[3] == "[]"):
        nbytes = int(bits) // 8 * int(count.strip("[]") or count != "[]")
        step = int(align or int(bits) // 8)
        starts[name] = -(-end // step) * step
        end = starts[name] + nbytes
    return starts, end


def _laid_out(params: list[tuple[str, str, str, str]]) -> dict[str, tuple[int, int]]:
    end = 0
    places = {}
    for align, bits, name, count in params:
        nbytes = int(bits) // 8 * int(count or 1)
        step = int(align or int(bits) // 8)
        places[name] = -(-end // step) * step, nbytes
        end = places[name][0] + nbytes
    return places
