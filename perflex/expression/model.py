"""Cost models: an output feature and a model string over features and parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from perflex.errors import ModelSyntaxError, PerflexError
from perflex.expression.contributions import contributions
from perflex.expression.functions import FUNCTIONS
from perflex.expression.parser import parse_expression, tokenize
from perflex.expression.tree import Call, Node, derivatives, evaluate, names, walk
from perflex.html import shown_by

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.features.target import Target

_WALL_TIME = re.compile(r"f_(cl|cuda)_wall_time(_|$)")


class HasParams(Protocol):
    """What carries parameter values, such as a calibration."""

    @property
    def params(self) -> Mapping[str, float]:
        """Value of each parameter."""


@dataclass(frozen=True, repr=False)
class Model:
    """A cost model: the output feature as a function of input features and parameters (paper Section 6).

    Parameters
    ----------
    output_feature
        Identifier of the feature that the model predicts, usually a wall time in seconds such as
        ``f_cl_wall_time_nvidia_geforce``.
    expression
        Arithmetic over feature names ``f_...`` and parameter names ``p_...``: numbers, ``+ - * / **``,
        parentheses, ``exp log sqrt tanh abs min max``, ``overlap(g, o, p_edge)`` (paper Eq. 5 with 6; the sum at 0),
        ``partial_overlap(g, o, p_edge, p_hidden)`` and ``smooth_max(x, y, ..., p_sharp)``, which is between the sum
        (p_sharp 0) and the maximum and, unlike ``max``, can be fitted. Blanks and line breaks may stand between names,
        never inside one.

    Raises
    ------
    ModelSyntaxError
        The expression cannot be read; the message shows the place.
    UnknownFeatureError
        A feature does not exist; the message suggests the nearest.

    Examples
    --------
    >>> model = Model("f_cl_wall_time_intel_epyc", "p_f32madd * f_op_float32_madd")
    >>> model.all_features()
    ['f_cl_wall_time_intel_epyc', 'f_op_float32_madd']
    >>> model.evaluate({"p_f32madd": 2e-12}, {"f_op_float32_madd": 1e9})
    0.002
    """

    output_feature: str
    expression: str

    def __post_init__(self) -> None:
        text, inputs = self.output_feature, self.input_features()
        if [token.text for token in tokenize(text)] != [text] or not text.startswith("f_") or text == "f_":
            msg = f"the output must be one feature, such as f_cl_wall_time_intel, not {text!r}"
            raise ModelSyntaxError(msg, text=text, position=0)
        for feature in (text, *inputs):
            # Which device a wall time belongs to is only known when it is measured.
            if not _WALL_TIME.match(feature):
                from perflex.features import parse_feature

                parse_feature(feature)
        if text in inputs:
            msg = f"the output feature {text} stands in the expression; remove it there"
            raise ModelSyntaxError(msg, text=self.expression, position=self.expression.find(text))

    # What follows from the two strings is made again where it is needed.
    def __getstate__(self) -> dict[str, str]:
        return {"output_feature": self.output_feature, "expression": self.expression}

    def __setstate__(self, state: dict[str, str]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"Model({self.output_feature!r}, {self.expression!r})"

    def __str__(self) -> str:
        text = " ".join(self.expression.split())
        parameters, features = (", ".join(part) or "none" for part in (self.params(), self.input_features()))
        return f"{self.output_feature} = {text}\n  parameters: {parameters}\n  features: {features}"

    _repr_html_ = shown_by("model.html")

    def _repr_latex_(self) -> str:
        from perflex.expression.symbolic import latex_of

        return f"$\\displaystyle {latex_of(self.output_feature, self.tree)}$"

    @cached_property
    def tree(self) -> Node:
        """The parsed expression."""
        return parse_expression(self.expression)

    def all_features(self) -> list[str]:
        """Return the output feature, then the input features in order of appearance."""
        return [self.output_feature, *self.input_features()]

    def input_features(self) -> list[str]:
        """Return the features in the expression, in order of appearance."""
        return [name for name in self._names if name.startswith("f_")]

    def params(self) -> list[str]:
        """Return the parameters, in order of appearance."""
        return [name for name in self._names if name.startswith("p_")]

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return names(self.tree)

    def nonsmooth_calls(self) -> list[str]:
        """Return the calls, such as of ``max``, that cannot be differentiated by the parameters in them."""
        return [
            self.expression[node.start : node.end]
            for node in walk(self.tree)
            if isinstance(node, Call)
            and not FUNCTIONS[node.function].smooth
            and any(name.startswith("p_") for name in names(node))
        ]

    @cached_property
    def symbolic(self) -> Any:
        """The expression in sympy, over symbols named like the features and parameters."""
        from perflex.expression.symbolic import real_expression

        return real_expression(self.tree)

    def derivatives(self, values: Mapping[str, Any], rows: int) -> NDArray[np.float64]:
        """Return the derivatives by the parameters at values of all names, shape ``(rows, len(params()))``."""
        return derivatives(self.tree, self.params(), values, rows)

    def evaluate(
        self, params: Mapping[str, float] | HasParams, values: Mapping[str, Any]
    ) -> float | NDArray[np.float64]:
        """Return the model's value for given feature values.

        Parameters
        ----------
        params
            Parameter values: a `FitResult`, a `Calibration`, or any mapping from parameter to value.
        values
            The value of each input feature: a number or an array; arrays broadcast.

        Returns
        -------
        float or array
            In the output feature's unit (seconds for a wall time); an array if any value is one.

        Raises
        ------
        PerflexError
            A parameter or feature has no value, or the result is not finite.
        """
        numbers = self._numbers(params, values)
        return self._checked(self.tree, evaluate(self.tree, numbers), values)

    def eval_with_kernel(
        self,
        params: Mapping[str, float] | HasParams,
        kernel: Any,
        sizes: Mapping[str, Any],
        *,
        sub_group_size: int | None = None,
    ) -> float | NDArray[np.float64]:
        """Predict the output feature of a kernel (paper Section 7.3).

        Parameters
        ----------
        params
            Parameter values, as for `evaluate`.
        kernel
            A loopy translation unit, or a measurement kernel.
        sizes
            Value of each size parameter of the kernel; a measurement kernel brings those left out.
        sub_group_size
            Work-items per sub-group; by default that of the fit, else those of the machine of `using_machine`, else 32.

        Returns
        -------
        float
            In the output feature's unit (seconds for a wall time).

        Raises
        ------
        PerflexError
            A parameter has no value.
        MissingSizeError
            A size parameter has no value.
        UnsupportedKernelError
            The kernel cannot be described exactly.
        """
        from perflex.features.values import target_of

        # Before the kernel is counted, which takes longer than to see that a parameter is missing.
        self._parameter_values(params)
        size = getattr(params, "sub_group_size", None) if sub_group_size is None else sub_group_size
        target = target_of(self.input_features(), size)
        return self.evaluate(params, self.feature_values(kernel, sizes, target))

    def feature_values(self, kernel: Any, sizes: Mapping[str, Any], target: Target) -> dict[str, Any]:
        """Return the value of each input feature for a kernel, as `evaluate` and `terms` take them.

        Arguments and errors are those of `eval_with_kernel`; `target` says what the kernel runs on.

        Warns
        -----
        PerflexWarning
            The kernel does something that a model of this kind should count but has no feature for.
        """
        from perflex.features.report import warn_uncounted
        from perflex.features.sized_kernel import with_own_sizes
        from perflex.features.values import feature_values

        kernel, sizes = with_own_sizes(kernel, sizes)
        features = self.input_features()
        values = feature_values(features, kernel, sizes, target)
        warn_uncounted(features, kernel, sizes)
        return values

    def terms(
        self, params: Mapping[str, float] | HasParams, values: Mapping[str, Any]
    ) -> dict[str, float | NDArray[np.float64]]:
        """Return what each cost of the expression contributes, keyed by its text.

        Costs are the terms of the expression, and within an overlap those of its arguments: each has its value times
        the derivative by it, scaled to add up, so that what is hidden adds nothing. Together they are `evaluate`.
        Arguments, units and errors are those of `evaluate`.
        """
        found: dict[str, float | NDArray[np.float64]] = {}
        for sign, term, value in contributions(self.tree, self._numbers(params, values)):
            text = self.expression[term.start : term.end]
            text = text if sign > 0 else f"-({text})"
            # The same term may stand there twice.
            found[text] = found.get(text, 0.0) + sign * self._checked(term, value, values)
        return found

    def _numbers(self, params: Mapping[str, float] | HasParams, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a value for every name in the expression, or say which has none."""
        numbers, needed = self._parameter_values(params), self.input_features()
        for feature in needed:
            if feature not in values:
                msg = f"no value is given for feature {feature}; the model needs {', '.join(needed)}"
                raise PerflexError(msg, feature=feature)
        return numbers | {feature: values[feature] for feature in needed}

    def _checked(self, node: Node, result: Any, values: Mapping[str, Any]) -> float | NDArray[np.float64]:
        """Return a node's value with the shape of the features in it; no value that is not finite gets out."""
        if not np.all(np.isfinite(result)):
            msg = f"the model {self.expression!r} gives no finite number for these values; check them for zeros"
            raise PerflexError(msg, model=self)
        # A node that simplifies to a number still has as many values as its features; what a cost adds depends on the
        # features of those that it overlaps with, too.
        shapes = (np.shape(values[name]) for name in names(node) if name.startswith("f_"))
        shape = np.broadcast_shapes(np.shape(result), *shapes)
        # A copy, for broadcast_to returns a read-only view.
        return float(result) if shape == () else np.array(np.broadcast_to(result, shape))

    def _parameter_values(self, params: Mapping[str, float] | HasParams) -> dict[str, Any]:
        mapping = params if isinstance(params, Mapping) else params.params
        missing = [name for name in self.params() if name not in mapping]
        if missing:
            given = ", ".join(mapping) or "none"
            msg = f"no value is given for parameter {', '.join(missing)} of the model; given are: {given}"
            raise PerflexError(msg, parameter=missing[0])
        return {name: mapping[name] for name in self.params()}
