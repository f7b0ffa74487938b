"""Nasty programs: temporaries, substitution rules, called kernels, several launches, barriers, atomics."""

import loopy as lp
import numpy as np
from loopy.kernel import KernelState

from .collection import ELEMENTS, local, nasty

XY = "x, y: float32[n + 16]"
LINE = "{[i]: 0<=i<n}"
GROUPS = "{[g,i]: 0<=g<n and 0<=i<8}"
Z = "; z: float32[n,8]"
AT = {"n": 18}

nasty("private_array_indexed", "{[i,j,k]: 0<=i<n and 0<=j,k<4}",
    "w[j] = x[i+j]*2 {id=a,inames=i:j}\ny[i] = sum(k, w[3-k]*x[i+k]) {dep=a}", XY, f"j: unr; {ELEMENTS}", at=AT,
    more=[lp.TemporaryVariable("w", np.float32, shape=(4,))])  # fmt: skip
nasty("local_scalar", GROUPS, "t = x[g]*2 {id=a,inames=g}\nz[g,i] = t*x[i] {dep=a}", XY + Z, "g: g.0; i: l.0", at=AT,
    more=[local("t")], then=lp.add_inames_for_unused_hw_axes)  # fmt: skip
TABLE = lp.TemporaryVariable("w", np.float32, shape=(4,), address_space=lp.AddressSpace.GLOBAL, read_only=True,
    initializer=np.arange(4, dtype=np.float32))  # fmt: skip
nasty("constant_table", "{[i,j]: 0<=i<n and 0<=j<4}", "y[i] = sum(j, w[j]*x[i+j])", XY, ELEMENTS, at=AT, more=[TABLE])
nasty("aliased_temporaries", "{[g,i,j]: 0<=g<n and 0<=i,j<8}",
    "t[i] = x[i+g]*2 {id=a,inames=g:i}\nz[g,i] = t[7-i] {id=b,dep=a}\n"
    "u[j] = x[j]+1 {id=c,dep=b,inames=g:j}\nz2[g,j] = u[7-j] {dep=c}",
    "x: float32[n+16]; z, z2: float32[n,8]", "g: g.0; i: l.0; j: l.0", at=AT,
    more=[local(t, 8, base_storage="m") for t in "tu"], then=lp.allocate_temporaries_for_base_storage)  # fmt: skip


def with_callees(caller):
    """Merge functions of four elements, of which one calls the other."""
    arrays = [lp.GlobalArg(name, np.float32, shape=(4,)) for name in "sr"]
    texts = {"inner": ("{[j]: 0<=j<4}", "r[j] = s[3-j]*s[j]"),
             "outer": ("{[j,k]: 0<=j,k<4}", "[j]: r[j] = inner([k]: s[k]) {id=a}\n")}  # fmt: skip
    made = [lp.make_function(*text, arrays, name=name, lang_version=(2018, 2)) for name, text in texts.items()]
    return lp.merge([caller, *made])


nasty("called_twice_two_levels", "{[i,j,k,l,q]: 0<=i<n and 0<=j,k,l,q<4}",
    "[k]: b[i,k] = outer([j]: a[i,j]) {id=x}\n[q]: c[i,q] = outer([l]: b[i,l]) {dep=x}", "a, b, c: float32[n,4]", at=AT,
    then=with_callees)  # fmt: skip


def reloaded(t):
    t = lp.save_and_reload_temporaries(lp.linearize(lp.preprocess_program(t)))
    # The order that it was made from is no longer the kernel's.
    return t.with_kernel(t["nasty"].copy(linearization=None, state=KernelState.PREPROCESSED))


nasty("saved_and_reloaded", [LINE],
    "<> t = x[i]*2 {id=a}\ny[i] = t {id=b,dep=a}\n... gbarrier {id=bar,dep=b}\nz[i] = y[n-1-i] + t {dep=bar}",
    f"{XY}; z: float32[n]", ELEMENTS, assume="n>=8 and n mod 8 = 0", at={"n": 24}, then=reloaded)  # fmt: skip
STEPS = ["{[s]: 0<=s<5}", LINE, "{[k]: 0<=k<n}"]
nasty("launches_in_a_host_loop", STEPS,
    "for s\n for i\n  y[i, s] = x[i]*2 {id=a}\n end\n ... gbarrier {id=bar, dep=a}\n"
    " for k\n  z[k] = z[k] + y[n-1-k, s] {id=c, dep=bar}\n end\n ... gbarrier {id=again, dep=c}\nend",
    "x, z: float32[n]; y: float32[n, 5]", f"{ELEMENTS}; k/4: g.0, l.0", at=AT)  # fmt: skip
# loopy's own order of the barriers goes round in a circle.
nasty("circle_of_barriers", STEPS,
    "for s\n for i\n  y[i] = x[i]*2 {id=a}\n end\n ... gbarrier {id=bar, dep=a}\n"
    " for k\n  x[k] = y[n-1-k] + 1 {id=c, dep=bar}\n end\nend",
    XY, f"{ELEMENTS}; k/4: g.0, l.0", refused="cannot schedule", at=AT)  # fmt: skip
nasty("atomic_update", "{[i,j]: 0<=i<n and 0<=j<3}", "y[(i+j) % 7] = y[(i+j) % 7] + x[i] {atomic}", "x: float32[n]",
    ELEMENTS, more=[lp.GlobalArg("y", np.float32, shape=(7,), for_atomic=True)], at=AT)  # fmt: skip
nasty("several_statements_write_one_array", [LINE, "{[j]: 0<=j<n}"], "y[2*i] = x[i]\ny[2*j+1] = x[j]*2 {nosync=insn}",
    "x: float32[n]; y: float32[2*n+2]", "i/4: g.0, l.0; j/4: g.0, l.0", at=AT)  # fmt: skip
nasty("barrier_by_hand", GROUPS,
    "t[i] = x[i+g] {id=a,inames=g:i}\n... lbarrier {id=bar,dep=a,mem_kind=local}\nz[g,i] = t[7-i] {dep=bar}", XY + Z,
    "g: g.0; i: l.0", more=[local("t", 8)], at=AT)  # fmt: skip
nasty("no_operation_and_literal", LINE, "y[i] = x[i] {id=a}\n... nop {id=b,dep=a}\ny[i] = y[i]+x[i] {dep=b}", XY,
    ELEMENTS, at=AT)  # fmt: skip
nasty("extracted_rule", LINE, "y[i] = x[i]*x[i+1] + x[i]*x[i+2]", XY, ELEMENTS,
    then=lambda t: lp.extract_subst(t, "f", "x[a]*x[a+1]", parameters="a"))  # fmt: skip
nasty("barrier_in_group_dependent_loop", "{[g,s,i]: 0<=g<n and 0<=s<=g and 0<=i<8}",
    "for g,s\n for i\n  t[i] = x[i+s] {id=a}\n end\n for i\n  z[g,i] = z[g,i] + t[7-i] {id=b,dep=a}\n end\nend", XY + Z,
    "g: g.0; i: l.0", more=[local("t", 8)], at={"n": 9})  # fmt: skip
nasty("three_launches_of_different_sizes", [LINE, "{[k,l]: 0<=k<n and 0<=l<=k}", "{[q]: 0<=q<n}"],
    "y[i] = x[i]*2 {id=a}\n... gbarrier {id=b1, dep=a}\nz[k] = sum(l, y[l]) {id=c, dep=b1}\n"
    "... gbarrier {id=b2, dep=c}\nw[q] = z[q]*y[q] + w[q] {dep=b2}",
    f"{XY}; z, w: float32[n]", f"{ELEMENTS}; k/16: g.0, l.0; q: g.0", at={"n": 40})  # fmt: skip
nasty("temporaries_in_ilp", "{[i,j]: 0<=i<n and 0<=j<4}", "<> s = x[i]*x[i+1] {id=a}\na[i,j] = s*x[j] {dep=a}",
    f"{XY}; a: float32[n,4]", "i/8: g.0; i_inner/4: ilp, l.0")  # fmt: skip
