"""Nasty programs: temporaries, substitution rules, called kernels, several launches, barriers, atomics."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
from loopy.kernel import KernelState

from .collection import arrays, kernel, nasty, per_element

XY = "x, y: float32[n + 16]"


@nasty(n=18)
def private_array_indexed() -> Any:
    t = kernel(
        "{[i,j,k]: 0<=i<n and 0<=j,k<4}",
        "w[j] = x[i+j]*2 {id=a,inames=i:j}\ny[i] = sum(k, w[3-k]*x[i+k]) {dep=a}",
        XY,
        lp.TemporaryVariable("w", np.float32, shape=(4,)),
    )
    return per_element(lp.tag_inames(t, "j:unr"))


@nasty(n=18)
def local_scalar() -> Any:
    t = kernel(
        "{[g,i]: 0<=g<n and 0<=i<8}",
        "t = x[g]*2 {id=a,inames=g}\nz[g,i] = t*x[i] {dep=a}",
        f"{XY}; z: float32[n,8]",
        lp.TemporaryVariable("t", np.float32, shape=(), address_space=lp.AddressSpace.LOCAL),
    )
    return lp.add_inames_for_unused_hw_axes(lp.tag_inames(t, "g:g.0,i:l.0"))


@nasty(n=18)
def constant_table() -> Any:
    t = kernel(
        "{[i,j]: 0<=i<n and 0<=j<4}",
        "y[i] = sum(j, w[j]*x[i+j])",
        XY,
        lp.TemporaryVariable(
            "w",
            np.float32,
            shape=(4,),
            address_space=lp.AddressSpace.GLOBAL,
            read_only=True,
            initializer=np.arange(4, dtype=np.float32),
        ),
    )
    return per_element(t)


@nasty(n=18)
def aliased_temporaries() -> Any:
    t = kernel(
        "{[g,i,j]: 0<=g<n and 0<=i,j<8}",
        "t[i] = x[i+g]*2 {id=a,inames=g:i}\nz[g,i] = t[7-i] {id=b,dep=a}\n"
        "u[j] = x[j]+1 {id=c,dep=b,inames=g:j}\nz2[g,j] = u[7-j] {dep=c}",
        "x: float32[n+16]; z, z2: float32[n,8]",
        lp.TemporaryVariable("t", np.float32, shape=(8,), address_space=lp.AddressSpace.LOCAL, base_storage="mem"),
        lp.TemporaryVariable("u", np.float32, shape=(8,), address_space=lp.AddressSpace.LOCAL, base_storage="mem"),
    )
    return lp.allocate_temporaries_for_base_storage(lp.tag_inames(t, "g:g.0,i:l.0,j:l.0"))


@nasty(n=18)
def called_twice_two_levels() -> Any:
    inner = lp.make_function(
        "{[j]: 0<=j<4}",
        "r[j] = s[3-j]*s[j]",
        [lp.GlobalArg("s", np.float32, shape=(4,)), lp.GlobalArg("r", np.float32, shape=(4,))],
        name="inner",
        lang_version=(2018, 2),
    )
    outer = lp.make_function(
        "{[j,k]: 0<=j,k<4}",
        "[j]: r[j] = inner([k]: s[k]) {id=a}\n",
        [lp.GlobalArg("s", np.float32, shape=(4,)), lp.GlobalArg("r", np.float32, shape=(4,))],
        name="outer",
        lang_version=(2018, 2),
    )
    caller = kernel(
        "{[i,j,k,l,q]: 0<=i<n and 0<=j,k,l,q<4}",
        "[k]: b[i,k] = outer([j]: a[i,j]) {id=x}\n[q]: c[i,q] = outer([l]: b[i,l]) {dep=x}",
        "a, b, c: float32[n,4]",
    )
    return lp.merge([caller, outer, inner])


@nasty(n=24)
def saved_and_reloaded() -> Any:
    t = kernel(
        ["{[i]: 0<=i<n}"],
        "<> t = x[i]*2 {id=a}\ny[i] = t {id=b,dep=a}\n... gbarrier {id=bar,dep=b}\nz[i] = y[n-1-i] + t {dep=bar}",
        f"{XY}; z: float32[n]",
        assume="n>=8 and n mod 8 = 0",
    )
    t = lp.split_iname(t, "i", 8, outer_tag="g.0", inner_tag="l.0")
    t = lp.save_and_reload_temporaries(lp.linearize(lp.preprocess_program(t)))
    # The order that it was made from is no longer the kernel's.
    return t.with_kernel(t["nasty"].copy(linearization=None, state=KernelState.PREPROCESSED))


@nasty(n=18)
def launches_in_a_host_loop() -> Any:
    t = kernel(
        ["{[s]: 0<=s<5}", "{[i]: 0<=i<n}", "{[k]: 0<=k<n}"],
        """
        for s
            for i
                y[i, s] = x[i]*2 {id=a}
            end
            ... gbarrier {id=bar, dep=a}
            for k
                z[k] = z[k] + y[n-1-k, s] {id=c, dep=bar}
            end
            ... gbarrier {id=again, dep=c}
        end
        """,
        "x, z: float32[n]; y: float32[n, 5]",
    )
    t = lp.split_iname(t, "i", 8, outer_tag="g.0", inner_tag="l.0")
    return lp.split_iname(t, "k", 4, outer_tag="g.0", inner_tag="l.0")


# loopy's own order of the barriers goes round in a circle.
@nasty(n=18, refused="cannot schedule")
def circle_of_barriers() -> Any:
    t = kernel(
        ["{[s]: 0<=s<5}", "{[i]: 0<=i<n}", "{[k]: 0<=k<n}"],
        """
        for s
            for i
                y[i] = x[i]*2 {id=a}
            end
            ... gbarrier {id=bar, dep=a}
            for k
                x[k] = y[n-1-k] + 1 {id=c, dep=bar}
            end
        end
        """,
        XY,
    )
    t = lp.split_iname(t, "i", 8, outer_tag="g.0", inner_tag="l.0")
    return lp.split_iname(t, "k", 4, outer_tag="g.0", inner_tag="l.0")


@nasty(n=18)
def atomic_update() -> Any:
    t = lp.make_kernel(
        "{[i,j]: 0<=i<n and 0<=j<3}",
        "y[(i+j) % 7] = y[(i+j) % 7] + x[i] {atomic}",
        [
            *arrays("x: float32[n]"),
            lp.GlobalArg("y", np.float32, shape=(7,), for_atomic=True),
            lp.ValueArg("n", np.int32),
        ],
        lang_version=(2018, 2),
        name="nasty",
        assumptions="n>=1",
    )
    return per_element(t)


@nasty(n=18)
def several_statements_write_one_array() -> Any:
    t = kernel(
        ["{[i]: 0<=i<n}", "{[j]: 0<=j<n}"],
        "y[2*i] = x[i]\ny[2*j+1] = x[j]*2 {nosync=insn}",
        "x: float32[n]; y: float32[2*n+2]",
    )
    return per_element(per_element(t, "i", 4), "j", 4)


@nasty(n=18)
def barrier_by_hand() -> Any:
    t = kernel(
        "{[g,i]: 0<=g<n and 0<=i<8}",
        "t[i] = x[i+g] {id=a,inames=g:i}\n... lbarrier {id=bar,dep=a,mem_kind=local}\nz[g,i] = t[7-i] {dep=bar}",
        f"{XY}; z: float32[n,8]",
        lp.TemporaryVariable("t", np.float32, shape=(8,), address_space=lp.AddressSpace.LOCAL),
    )
    return lp.tag_inames(t, "g:g.0,i:l.0")


@nasty(n=18)
def no_operation_and_literal() -> Any:
    return per_element(
        kernel("{[i]: 0<=i<n}", "y[i] = x[i] {id=a}\n... nop {id=b,dep=a}\ny[i] = y[i]+x[i] {dep=b}", XY)
    )


@nasty(n=13)
def extracted_rule() -> Any:
    t = per_element(kernel("{[i]: 0<=i<n}", "y[i] = x[i]*x[i+1] + x[i]*x[i+2]", XY))
    return lp.extract_subst(t, "f", "x[a]*x[a+1]", parameters="a")


@nasty(n=9)
def barrier_in_group_dependent_loop() -> Any:
    t = kernel(
        "{[g,s,i]: 0<=g<n and 0<=s<=g and 0<=i<8}",
        "for g,s\n for i\n  t[i] = x[i+s] {id=a}\n end\n for i\n  z[g,i] = z[g,i] + t[7-i] {id=b,dep=a}\n end\nend",
        f"{XY}; z: float32[n,8]",
        lp.TemporaryVariable("t", np.float32, shape=(8,), address_space=lp.AddressSpace.LOCAL),
    )
    return lp.tag_inames(t, "g:g.0,i:l.0")


@nasty(n=40)
def three_launches_of_different_sizes() -> Any:
    text = """
    y[i] = x[i]*2 {id=a}
    ... gbarrier {id=b1, dep=a}
    z[k] = sum(l, y[l]) {id=c, dep=b1}
    ... gbarrier {id=b2, dep=c}
    w[q] = z[q]*y[q] + w[q] {dep=b2}
    """
    domains = ["{[i]: 0<=i<n}", "{[k,l]: 0<=k<n and 0<=l<=k}", "{[q]: 0<=q<n}"]
    t = kernel(domains, text, f"{XY}; z, w: float32[n]")
    return lp.tag_inames(per_element(per_element(t, "i", 8), "k", 16), "q:g.0")


@nasty(n=13)
def temporaries_in_ilp() -> Any:
    text = "<> s = x[i]*x[i+1] {id=a}\na[i,j] = s*x[j] {dep=a}"
    t = kernel("{[i,j]: 0<=i<n and 0<=j<4}", text, f"{XY}; a: float32[n,4]")
    t = lp.split_iname(t, "i", 8, outer_tag="g.0")
    return lp.split_iname(t, "i_inner", 4, outer_tag="ilp", inner_tag="l.0")
