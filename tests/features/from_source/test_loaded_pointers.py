"""Pointers that kernels load from memory, and addresses as integers. Truth: what 64 work-items read, by hand."""

import pytest

from perflex import source_kernel
from perflex.errors import UnsupportedKernelError
from perflex.features import count_features

HEAD = """
struct S {{ float *v; int n; S *next; float *rows[2]; struct {{ int first; float *w; }} in; }};
__global__ void f(S *s, float **p, const float *a, float *y, int n) {{ int i = threadIdx.x; {} }}
"""


def counted(body, *identifiers):
    kernel = source_kernel(HEAD.format(body), "f", local=64, groups=1)
    found = count_features(kernel, {"n": 3}, identifiers=list(identifiers))
    return [each.value for each in found], {str(each.certainty) for each in found}


# Of what all work-items read, each sub-group loads one.
@pytest.mark.parametrize(("body", "array", "loads", "footprint"), [
    ("y[i] = s->v[i];", "s_v", 64, 64),
    ("y[i] = s[1].v[i] + s[1].v[2 * i];", "s_1_v", 128, 96),
    ("S t = *s; y[i] = t.v[i] + s->v[i + 1];", "s_v", 128, 65),
    ("y[i] = s->in.w[i];", "s_in_w", 64, 64),
    ("S &t = s[2]; y[i] = t.in.w[0] + *t.in.w;", "s_2_in_w", 4, 1),
    ("y[i] = p[0][i];", "p_0", 64, 64),
    ("float *q = p[3]; for (int k = 0; k < n; ++k) y[i] = *q++;", "p_3", 2 * 3, 3),
])  # fmt: skip
def test_what_is_loaded_points_to_an_array_of_its_own(body, array, loads, footprint):
    found, certainty = counted(body, f"f_mem_access_array:{array}_load", f"f_mem_footprint_array:{array}")
    assert found == [loads, footprint]
    assert certainty == {"exact"}


@pytest.mark.parametrize(("body", "array", "loads"), [
    ("y[i] = s[i].v[2];", "s_any_v", 64), ("y[i] = p[i][i] + p[n][i];", "p_any", 128),
    # In words of 4 bytes: a pointer that each sub-group loads, two that each work-item loads, and an integer.
    ("y[i] = s->next->next->next->n;", "s", 4 + 64 * 5),
])  # fmt: skip
def test_somewhere_in_an_array(body, array, loads):
    assert counted(body, f"f_mem_access_array:{array}_load") == ([loads], {"as stated"})
    with pytest.raises(UnsupportedKernelError, match=f"--state {array}=N"):
        counted(body, f"f_mem_footprint_array:{array}")


@pytest.mark.parametrize("body", [
    "s->v = y; s->v[i] = 1;", "y[i] = s->v[0]; s->v = y;", "y[i] = s->v[0]; s[1] = s[n];",
    "__shared__ float *q[2]; q[0] = y; q[0][i] = 1;", "y[i] = s->v[0]; p = &s->v; *p = y;",
    "*(a[i] > 0 ? &s->v : p) = y; y[i] = s->v[0];",
])  # fmt: skip
def test_pointers_that_the_kernel_stores_are_not_followed(body):
    with pytest.raises(UnsupportedKernelError, match=r"which array|the kernel stores pointers in"):
        counted(body)


def test_addresses_are_in_bytes():
    body = "y[i] = *(const float *)((size_t)a + 8 * i) + *(const float *)(16 * i + (unsigned long)a);"
    names = [f"f_mem_access_global_float32_load_lstrides:{{0:{stride}}}" for stride in (2, 4)]
    assert counted(body, *names, "f_mem_footprint_array:a") == ([64, 64, 96], {"exact"})


def test_what_is_left_of_an_address_may_be_zero():
    body = "if (((size_t)a & 15) == 0) y[i] = a[i]; else y[i] = ((float *)(((size_t)a + 15) & ~(size_t)15))[i];"
    assert counted(body, "f_mem_access_array:a_load") == ([128], {"upper bound as stated"})


TREE = """
struct Node { int key; Node *left, *right; };
__global__ void f(const Node *root, const int *keys, float *out) { int i = threadIdx.x; const Node *p = root; BODY }
"""


@pytest.mark.parametrize(("body", "loads"), [
    # In words: a key and, as data choose, both pointers, of two words each; twice, and then a key.
    ("for (int d = 0; d < 2; ++d) p = keys[i] < p->key ? p->left : p->right; if (p) out[i] = p->key;", 2 * 5 + 1),
    ("for (int d = 0; p && d < 2; ++d) { out[i] = p->key; p = p->left; }", None),
])  # fmt: skip
def test_trees_lie_in_one_array_and_may_end(body, loads):
    kernel = source_kernel(TREE.replace("BODY", body), "f", local=64, groups=1)
    if loads is None:
        with pytest.raises(UnsupportedKernelError, match=r"trip count of .* is not known \(data decide\)"):
            kernel.scop()
        return
    (found,) = count_features(kernel, {}, identifiers=["f_mem_access_array:root_load"])
    assert (found.value, str(found.certainty)) == (64 * loads, "upper bound as stated")


def test_what_stands_for_an_element_may_multiply_sizes_by_indices():
    stated = {"p[i / 32][i % 32]": "(gid0*n + i/32)*n + i%32"}
    kernel = source_kernel(HEAD.format("y[i] = p[i / 32][i % 32];"), "f", local=64, groups=3, stated=stated)
    (found,) = count_features(kernel, {"n": 40}, identifiers=["f_mem_footprint_array:p_any"])
    assert found.value == 3 * 64
