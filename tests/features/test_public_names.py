"""The public names of features, and what importing them costs."""

from perflex.features import parse_feature, register_family
from perflex.features.families import registry


def test_a_family_of_ones_own_is_asked_last(monkeypatch):
    class Family:
        def parse(self, identifier):
            return parse_feature("f_op_float32_add") if identifier in {"f_mine", "f_op_float32_mul"} else None

        def examples(self):
            return ("f_mine",)

    monkeypatch.setattr(registry, "_families", list(registry._families))
    register_family(Family())
    try:
        assert parse_feature("f_mine").identifier == "f_op_float32_add"
        assert parse_feature("f_op_float32_mul").identifier == "f_op_float32_mul"
    finally:
        registry._in_families.cache_clear()
