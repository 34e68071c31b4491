"""Generate a Python function from steps.

A step is a node of the plan that the planner makes from a checked expression. A fault is a CEL error as a value. The
function returns the same values and costs as the interpreter. It raises an error for a fault, a missing field, or data
that does not have its declared type; then the interpreter evaluates the steps. So the generated code needs no texts of
faults, and no costs of evaluations that end early.
"""

from collections.abc import Callable, Mapping
from typing import Any

from apiext.cel import limits
from apiext.cel.attributes import (
    Access,
    Attribute,
    ByAttribute,
    ByConstant,
    ByField,
    Conditional,
    OfStep,
    Qualifier,
    Variable,
)
from apiext.cel.checker import Checked
from apiext.cel.declared import Declared
from apiext.cel.escaping import unescape
from apiext.cel.evaluation import Code, Constant, Step
from apiext.cel.natives import NATIVE
from apiext.cel.plan import CallStep, Logic, Loop, MakeList, MakeObject, Membership, grow_list
from apiext.cel.ranges import LIST_COST, OBJECT_COST
from apiext.cel.writer import CHECKS, KINDS, LITERAL_KINDS, Unsupported, Val, Writer


def generate(
    checked: Checked, step: Step, declared: Mapping[str, Declared], optional: frozenset[str]
) -> tuple[Code, bool] | None:
    """Return (generated function, whether it calls the interpreter for some parts).

    The function maps variables and a limit to (value, cost). Return None if code cannot be generated, or is too long.
    """
    if checked.loose:
        return None
    generator = Generator(checked, declared, optional)
    try:
        source = generator.whole(step)
        if len(source) > limits.MAX_SOURCE:
            return None
        namespace = generator.namespace
        exec(compile(source, "<expression>", "exec"), namespace)
    except (Unsupported, SyntaxError, RecursionError, MemoryError):
        return None
    run: Code = namespace["run"]
    return run, generator.mixed


class Generator(Writer):
    """The code generator of one expression."""

    def __init__(self, checked: Checked, declared: Mapping[str, Declared], optional: frozenset[str]) -> None:
        super().__init__(checked)
        self.declared = declared
        self.optional = optional
        self.loops = 0
        self.mixed = False
        self.scopes: list[dict[str, Val]] = [{}]

    def whole(self, step: Step) -> str:
        """Return the source of the function."""
        body_from = len(self.lines)
        value = self.value(self.emit(step))
        self.flush()
        self.line("if c > limit.max_cost: raise _Unhandled")
        self.line(f"return {value.text}, c")
        head = ["def run(variables, limit):", "    c = 0"]
        return "\n".join(head + self.lines[body_from:])

    # Steps

    def emit(self, step: Step) -> Val:
        """Write the code of a step, or a call of the interpreter if no code can be generated."""
        mark = len(self.lines), self.pending, self.count, self.indent, self.loops, len(self.scopes)
        globals_written = dict(self.scopes[0])
        try:
            return self.native(step)
        except Unsupported:
            del self.lines[mark[0] :]
            self.pending, self.count, self.indent, self.loops = mark[1:5]
            del self.scopes[mark[5] :]
            self.scopes[0] = globals_written
            return self.interpreted(step)

    def native(self, step: Step) -> Val:
        write = _WRITTEN.get(type(step))
        if write is None:
            raise Unsupported
        return write(self, step)

    def list_of(self, step: MakeList) -> Val:
        if step.optional:
            raise Unsupported
        elements = [self.value(self.emit(element)).text for element in step.parts]
        self.charge(LIST_COST)
        return Val(f"[{', '.join(elements)}]", "list")

    def object_of(self, step: MakeObject) -> Val:
        if step.optional:
            raise Unsupported
        fields = [f"{name!r}: {self.value(self.emit(part)).text}" for name, part in step.fields]
        self.charge(OBJECT_COST)
        name = self.let(f"{self.keep(step.make, 'f')}({step.type_name!r}, {{{', '.join(fields)}}})")
        self.unhandled_if(f"type({name}) is _Fault")
        return Val(name, "any")

    def interpreted(self, step: Step) -> Val:
        """Write a call of the interpreter for a single step."""
        self.mixed = True
        self.flush()
        used = _variables(step)
        names: dict[str, Val] = {}
        for scope in self.scopes:
            names |= {name: val for name, val in scope.items() if name in used}
        given = ", ".join(f"{name!r}: {self.value(val).text}" for name, val in names.items())
        name = self.name()
        world = self.keep((self.declared, self.optional), "w")
        self.line(f"{name}, c = _interpret({self.keep(step, 's')}, {{{given}}}, variables, {world}, limit, c)")
        return Val(name, self.kind_of(step.id))

    def find(self, name: str) -> Val:
        """Return the value of a variable of a loop or of the evaluation."""
        if name.startswith("."):
            raise Unsupported
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        if name in self.optional:
            raise Unsupported
        declared = self.declared.get(name)
        read = f"variables[{name!r}]"
        if declared is None:
            return Val(self.let(read), "any")
        found = self.load(read, declared)
        if self.indent == 1:
            self.scopes[0][name] = found  # this code is in no branch, so all later code can use its result
        return found

    def access(self, step: Access) -> Val:
        attribute = step.attribute
        if isinstance(attribute, Conditional):
            if step.test:
                raise Unsupported
            return self.resolve(attribute)
        self.charge(0 if step.test else 1)
        return self.resolve(attribute)

    def resolve(self, attribute: Attribute) -> Val:
        """Write the code of an attribute, without the cost of its variable."""
        if isinstance(attribute, Conditional):
            return self.conditional(attribute)
        if isinstance(attribute, Variable):
            val = self.find(attribute.name)
        else:
            assert isinstance(attribute, OfStep)
            val = self.emit(attribute.step)
        for at, qualifier in enumerate(attribute.qualifiers):
            if qualifier.optional or val.kind == "optional":
                raise Unsupported
            if val.kind == "any" and self.is_optional(attribute, at):
                raise Unsupported
            val = self.qualify(val, qualifier)
        return val

    def is_optional(self, attribute: Attribute, at: int) -> bool:
        """Return whether the operand of the selection at an index may be an optional value."""
        id = attribute.qualifiers[at - 1].id if at else attribute.own_id
        kind = self.checked.types[id]
        return kind.kind in ("opaque", "dyn", "parameter")

    def qualify(self, val: Val, qualifier: Qualifier) -> Val:
        self.charge(1)
        if isinstance(qualifier, ByConstant):
            if qualifier.test:
                return self.has(val, qualifier.key)
            if val.kind == "raw" and val.declared is not None:
                found = self.select(val, val.declared, qualifier.key)
                if found is not None:
                    return found
            key = Val(self.constant(Constant(0, qualifier.key)).text, "any")
        elif isinstance(qualifier, ByField):
            name = self.let(f"_field({self.value(val).text}, {qualifier.key!r}, {qualifier.test})")
            return Val(name, "bool" if qualifier.test else "any")
        else:
            assert isinstance(qualifier, ByAttribute)
            key = self.resolve(qualifier.attribute)
            if val.kind == "raw" and val.declared is not None and val.declared.element is not None:
                if val.declared.kind == "list" and key.kind == "int":
                    self.unhandled_if(f"{key.text} < 0")
                    return self.load(f"{self.container(val)}[{key.text}]", val.declared.element)
                if val.declared.kind == "map" and key.kind == "string":
                    return self.load(f"{val.text}[{key.text}]", val.declared.element)
        name = self.let(f"_lookup({self.value(val).text}, {self.value(key).text})")
        kind = self.kind_of(qualifier.id)
        if kind != "any":  # an element may be null, if it comes from a nullable field
            self.unhandled_if(f"{name} is None")
        return Val(name, kind)

    def select(self, val: Val, declared: Declared, key: object) -> Val | None:
        """Write a selection by a constant from data of a declared type.

        Return None if no code is possible.
        """
        if declared.kind == "object" and type(key) is str:
            field = unescape(key)
            inner = declared.properties.get(field) if field is not None else None
            return None if inner is None else self.load(f"{val.text}[{field!r}]", inner, True)
        assert declared.element is not None or declared.kind == "object"
        if declared.kind == "map" and type(key) is str and declared.element is not None:
            return self.load(f"{val.text}[{key!r}]", declared.element)
        if declared.kind == "list" and type(key) is int and key >= 0 and declared.element is not None:
            return self.load(f"{self.container(val)}[{key}]", declared.element)
        return None

    def has(self, val: Val, key: object) -> Val:
        if val.kind != "raw" or val.declared is None or type(key) is not str:
            raise Unsupported
        if val.declared.kind == "object":
            field = unescape(key)
            if field is None or field not in val.declared.properties:
                raise Unsupported
            return self.present(self.let(f"{val.text}.get({field!r})"), val.declared.properties[field])
        if val.declared.kind == "map":
            assert val.declared.element is not None
            name = self.let(f"{val.text}.get({key!r})")
            self.unhandled_if(f"{name} is None and {key!r} in {val.text}")
            return self.present(name, val.declared.element)
        raise Unsupported

    def branch(self, write: Callable[[], Val], target: str) -> Val:
        """Write a branch that ends with an assignment to ``target``.

        Its costs are added inside the branch, not with the costs of the code around it.
        """
        before, self.pending = self.pending, 0
        self.indent += 1
        val = write()
        self.line(f"{target} = {val.text}")
        self.flush()
        self.indent -= 1
        self.pending = before
        return val

    def logic(self, step: Logic) -> Val:
        target = self.let(self.truth(self.emit(step.terms[0])))
        for term in step.terms[1:]:
            self.line(f"if not {target}:" if step.decides else f"if {target}:")
            self.branch(lambda term=term: Val(self.truth(self.emit(term)), "bool"), target)  # type: ignore[misc]
        return Val(target, "bool")

    def conditional(self, attribute: Conditional) -> Val:
        condition = self.truth(self.emit(attribute.condition))
        target = self.name()
        at = len(self.lines)
        self.line(f"if {condition}:")
        yes = self.branch(lambda: self.resolve(attribute.yes), target)
        self.line("else:")
        no = self.branch(lambda: self.resolve(attribute.no), target)
        if yes.kind == no.kind and yes.declared is no.declared:
            return Val(target, yes.kind, yes.declared)
        if "raw" in (yes.kind, no.kind):
            del self.lines[at:]
            self.line(f"if {condition}:")
            self.branch(lambda: self.value(self.resolve(attribute.yes)), target)
            self.line("else:")
            self.branch(lambda: self.value(self.resolve(attribute.no)), target)
        return Val(target, "any")

    def call(self, step: CallStep) -> Val:
        if step.implement is grow_list:
            return self.gather(step)
        args = [self.emit(arg) for arg in step.args]
        native = NATIVE.get(step.overload)
        if native is not None:
            found = native(self, step, args)
            if found is not None:
                return found
        values = [self.value(arg).text for arg in args]
        name = self.let(f"{self.keep(step.implement, 'f')}({', '.join(values)})")
        self.unhandled_if(f"type({name}) is _Fault")
        if step.charge is None:
            self.charge(1)
        else:
            self.charge_text(f"{self.keep(step.charge, 'q')}([{', '.join(values)}], {name})")
        kind = step.result if step.result in KINDS else "any"
        return Val(name, kind)

    def gather(self, step: CallStep) -> Val:
        """Write code that appends elements to the list that a loop builds."""
        accu = self.emit(step.args[0])
        more = self.emit(step.args[1])
        self.charge(1)
        added = step.args[1]
        if isinstance(added, MakeList) and len(added.parts) == 1 and more.text.startswith("["):
            self.line(f"{accu.text}.append({more.text[1:-1]})")
        else:
            self.line(f"{accu.text}.extend({self.value(more).text})")
        return accu

    def membership(self, step: Membership) -> Val:
        arg = self.emit(step.arg)
        members = self.keep(step.members, "m")
        if arg.kind in ("string", "int"):
            return Val(self.let(f"{arg.text} in {members}"), "bool")
        return Val(self.let(f"_is_member({self.value(arg).text}, {members})"), "bool")

    # Loops

    def loop(self, step: Loop) -> Val:
        if not isinstance(step.init, Constant) or self.loops >= limits.MAX_LOOPS:
            raise Unsupported
        over = self.emit(step.over)
        self.flush()
        accu = self.name()
        init = step.init.value
        kind = LITERAL_KINDS.get(type(init), "any")
        self.line(f"{accu} = {'[]' if init == [] else self.constant(step.init).text}")
        if kind == "any" and init != []:
            raise Unsupported
        accumulated = Val(accu, kind)
        self.loops += 1
        self.scopes.append({step.accu: accumulated})
        self.scopes.append({})
        self.turns(step, over, accumulated)
        self.scopes.pop()
        self.loops -= 1
        result = self.emit(step.result)
        self.scopes.pop()
        return result

    def turns(self, step: Loop, over: Val, accumulated: Val) -> None:
        """Write the ``for`` statement of a loop."""
        scope = self.scopes[-1]
        first, second = self.name(), self.name()
        declared = over.declared if over.kind == "raw" else None
        self.container(over)
        both = f"{first}, {second}" if step.var2 else first
        head, loads = self.head(step, over, declared, both)
        self.line(head)
        self.indent += 1
        before, self.pending = self.pending, 0
        kinds = self.element_kinds(step)
        for variable, text, inner, kind in (
            (step.var, first, loads[0], kinds[0]),
            (step.var2, second, loads[1], kinds[1]),
        ):
            if not variable:
                continue
            if inner is not None:
                scope[variable] = self.load(text, inner)
            else:
                if declared is None:
                    # an element may be null, if it comes from a nullable field
                    null = f" or {text} is None" if kind != "any" else ""
                    self.unhandled_if(f"type({text}) is _Fault{null}")
                scope[variable] = Val(text, kind)
        if not isinstance(step.condition, Constant):
            go_on = self.truth(self.emit(step.condition))
            self.line(f"if not {go_on}:")
            if self.pending:
                self.line(f"    c += {self.pending}")
            self.line("    break")
        value = self.value(self.emit(step.step))
        if value.text != accumulated.text:
            self.line(f"{accumulated.text} = {value.text}")
            if value.kind != accumulated.kind:
                self.unhandled_if(f"type({accumulated.text}) is not {CHECKS.get(accumulated.kind, 'list')}")
        self.flush()
        self.line("if c > limit.max_cost: raise _Reached(c)")
        self.indent -= 1
        self.pending = before

    def head(
        self, step: Loop, over: Val, declared: Declared | None, both: str
    ) -> tuple[str, tuple[Declared | None, Declared | None]]:
        """Return (first line of the loop, declared types of its two variables)."""
        if declared is not None and declared.kind == "list":
            if step.var2:
                return f"for {both} in enumerate({over.text}):", (None, declared.element)
            return f"for {both} in {over.text}:", (declared.element, None)
        if declared is not None and declared.kind == "map":
            read = f"{over.text}.items()" if step.var2 else over.text
            return f"for {both} in {read}:", (None, declared.element)
        if declared is not None:
            raise Unsupported
        read = f"_pairs({over.text})" if step.var2 else f"_elements({over.text})"
        return f"for {both} in {read}:", (None, None)

    def element_kinds(self, step: Loop) -> tuple[str, str]:
        """Return the kinds of the loop's two variables, from the type of its list or map."""
        over = self.checked.types[step.over.id]
        if over.kind == "list":
            element = over.params[0].kind if over.params[0].kind in KINDS else "any"
            return ("int", element) if step.var2 else (element, "any")
        if over.kind == "map":
            key, value = (param.kind if param.kind in KINDS else "any" for param in over.params)
            return key, value
        return "any", "any"


_WRITTEN: Mapping[type[Step], Callable[[Generator, Any], Val]] = {
    Constant: Generator.constant,
    Access: Generator.access,
    Logic: Generator.logic,
    CallStep: Generator.call,
    Loop: Generator.loop,
    Membership: Generator.membership,
    MakeList: Generator.list_of,
    MakeObject: Generator.object_of,
}
"""Class of a step → its code generator; the interpreter evaluates steps of other classes."""


def _variables(step: object) -> set[str]:
    """Return the names of variables inside a step."""
    found: set[str] = set()
    waiting = [step]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Variable):
            found.add(item.name)
        if isinstance(item, (Step, Attribute, Qualifier)):
            for kind in type(item).__mro__:
                for slot in getattr(kind, "__slots__", ()):
                    inner = getattr(item, slot, None)
                    if isinstance(inner, (Step, Attribute, Qualifier, list, tuple)):
                        waiting.append(inner)
        elif isinstance(item, (list, tuple)):
            waiting.extend(item)
    return found
