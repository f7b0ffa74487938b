"""Kernels without flaws in CUDA C and OpenCL C, into which `planted_kernels` plants one flaw each."""


def opencl(text: str) -> str:
    """Return a kernel in CUDA C as OpenCL C."""
    for axis, name in enumerate("xy"):
        text = text.replace(f"blockIdx.{name} * blockDim.{name} + threadIdx.{name}", f"get_global_id({axis})")
        text = text.replace(f"threadIdx.{name}", f"get_local_id({axis})")
        text = text.replace(f"blockIdx.{name}", f"get_group_id({axis})")
    for cuda, word in [
        ("float *", "global float *"),
        ("const global", "global const"),
        ("__global__", "__kernel"),
        ("__shared__", "__local"),
        ("__syncthreads()", "barrier(CLK_LOCAL_MEM_FENCE)"),
    ]:
        text = text.replace(cuda, word)
    return text


SAXPY = """
__global__ void saxpy(float *y, const float *x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
"""
SCALE = """
__global__ void scale(float *y, const float *x, int n) {
  int j = blockIdx.x * 32 + threadIdx.x;
  int i = blockIdx.y * 8 + threadIdx.y;
  y[i * n + j] = 2.0f * x[i * n + j];
}
"""
# Two of six fields of each particle.
NORMS = """
__global__ void norms(float *r, const float *p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  r[i] = p[i] * p[i] + p[n + i] * p[n + i];
}
"""
# One of eight fields of each particle.
FIELD = """
__global__ void field(float *y, const float *p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = p[3 * n + i];
  y[i] = 0.5f * v;
}
"""
SHIFT_CL = """
__kernel void shift(__global float *y, __global const float *x) {
  int i = get_global_id(0);
  float v = x[i];
  y[i] = v + 1.0f;
}
"""
COPY_CL = """
__kernel void copy(__global float *y, __global const float *x, int n) {
  int j = get_global_id(0), i = get_global_id(1);
  y[i * n + j] = x[i * n + j];
}
"""
TRIAD4 = """
__global__ void triad4(float4 *a, const float4 *b, const float4 *c, float s) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 u = b[i], v = c[i];
  a[i] = make_float4(u.x + s * v.x, u.y + s * v.y, u.z + s * v.z, u.w + s * v.w);
}
"""
RANK_ONE = """
__global__ void rank_one(float *c, const float *a, const float *b, int n) {
  int j = blockIdx.x * blockDim.x + threadIdx.x;
  c[blockIdx.y * n + j] += a[blockIdx.y] * b[j];
}
"""
POLYNOMIAL = """
__global__ void polynomial(float *y, const float *x) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float u = x[i];
  y[i] = (u - 0.1f) * (u - 0.2f) * (u - 0.3f) * (u - 0.4f) * (u - 0.5f) * (u - 0.6f);
}
"""
# A work-item's value is mapped m times.
ORBIT = """
__global__ void orbit(float *y, const float *x, float r, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i];
  for (int k = 0; k < m; k++) v = r * v * (1.0f - v);
  y[i] = v;
}
"""
TWO_WAYS = """
__global__ void two_ways(float *y, const float *x, float a, float b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i];
  if (i < n / 2) for (int k = 0; k < 256; k++) v = a * v + b; else for (int k = 0; k < 256; k++) v = b * (v - a);
  y[i] = v;
}
"""
ONE_IN_FOUR = """
__global__ void one_in_four(float *y, const float *x, float a, float b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i];
  if (i < n / 4) for (int k = 0; k < 512; k++) v = a * v + b;
  y[i] = v;
}
"""
# Several elements for each work-item, one after the other.
MARCH = """
__global__ void march(float *y, const float *x, float a, int n, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = 0.0f;
  for (int k = 0; k < m; k++) {
    v = a * v + x[k * n + i];
    y[k * n + i] = v;
  }
}
"""
# The array in local memory may be larger than what is used of it.
STAGED = """
__global__ void staged(float *y, const float *x, int n, int m) {
  __shared__ float s[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  for (int k = 0; k < m; k++) {
    s[t] = x[k * n + i];
    __syncthreads();
    y[k * n + i] = s[blockDim.x - 1 - t];
    __syncthreads();
  }
}
"""


CHUNKS = """
__global__ void chunks(float *y, const float *x) {
  int t = threadIdx.x;
  float s = 0.0f;
  for (int k = 0; k < 16; k++) {
    float v = x[blockIdx.x * 4096 + k * 256 + t];
    s += v;
  }
  y[blockIdx.x * 256 + t] = s;
}
"""
COLUMN_SUMS = """
__global__ void column_sums(float *y, const float *x, int n, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float s = 0.0f;
  for (int k = 0; k < m; k++) s += x[k * n + i];
  y[i] = s;
}
"""
# Rows of 32 elements, staged in local memory.
ROWS_OF_32 = """
__global__ void rows_of_32(float *y, const float *x) {
  __shared__ float buf[64][33];
  int t = threadIdx.x;
  for (int k = 0; k < 32; k++) buf[2 * k + t / 32][t % 32] = x[blockIdx.x * 2048 + k * 64 + t];
  __syncthreads();
  float s = 0.0f;
  for (int k = 0; k < 32; k++) s += buf[t][k];
  y[blockIdx.x * 64 + t] = s;
}
"""
ROWS_OF_16 = """
__global__ void rows_of_16(float *y, const float *x) {
  __shared__ float buf[128][17];
  int t = threadIdx.x;
  for (int k = 0; k < 16; k++) buf[8 * k + t / 16][t % 16] = x[blockIdx.x * 2048 + k * 128 + t];
  __syncthreads();
  float s = 0.0f;
  for (int k = 0; k < 16; k++) s += buf[t][k];
  y[blockIdx.x * 128 + t] = s;
}
"""
TREE = """
__global__ void tree(float *y, const float *x) {
  __shared__ float sum[256];
  int t = threadIdx.x;
  sum[t] = x[blockIdx.x * 256 + t];
  __syncthreads();
  for (int s = 128; s > 0; s /= 2) {
    if (t < s) sum[t] += sum[t + s];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = sum[0];
}
"""
TREE_OF_16 = TREE.replace(
    "sum[t] = x[blockIdx.x * 256 + t];",
    "sum[t] = 0.0f;\n  for (int k = 0; k < 16; k++) sum[t] += x[blockIdx.x * 4096 + k * 256 + t];",
)
LOSSES = """
__global__ void losses(float *y, const float *x) {
  int t = threadIdx.x;
  float s = 0.0f;
  for (int k = 0; k < 16; k++) {
    float u = x[blockIdx.x * 4096 + k * 256 + t];
    float v = (u - 0.5f) * (u - 1.5f) * (u + 0.5f);
    s += v;
  }
  y[blockIdx.x * 256 + t] = s;
}
"""
# A sub-group for each row.
DOTS = """
__global__ void dots(float *y, const float *a, const float *b, int n) {
  int lane = threadIdx.x, row = blockIdx.x * 8 + threadIdx.y;
  float s = 0.0f;
  for (int k = 0; k < n; k += 32) s += a[row * n + k + lane] * b[row * n + k + lane];
  for (int d = 16; d > 0; d /= 2) s += __shfl_down_sync(0xffffffff, s, d);
  if (lane == 0) y[row] = s;
}
"""
NORMALISED = """
__global__ void normalised(float *y, const float *x, int n) {
  int lane = threadIdx.x, row = blockIdx.x * 8 + threadIdx.y;
  float s = 0.0f, q = 0.0f;
  for (int k = 0; k < n; k += 32) {
    float v = x[row * n + k + lane];
    s += v;
    q += v * v;
  }
  for (int d = 16; d > 0; d /= 2) {
    s += __shfl_xor_sync(0xffffffff, s, d);
    q += __shfl_xor_sync(0xffffffff, q, d);
  }
  float mean = s / n, scale = rsqrtf(q / n - mean * mean + 1e-5f);
  for (int k = 0; k < n; k += 32) y[row * n + k + lane] = (x[row * n + k + lane] - mean) * scale;
}
"""

TRANSPOSE = """
__global__ void transpose(float *y, const float *x, int n) {
  __shared__ float tile[32][33];
  int tx = threadIdx.x, ty = threadIdx.y, bx = blockIdx.x * 32, by = blockIdx.y * 32;
  for (int r = 0; r < 32; r += 8) tile[ty + r][tx] = x[(by + ty + r) * n + bx + tx];
  __syncthreads();
  for (int r = 0; r < 32; r += 8) y[(bx + ty + r) * n + by + tx] = tile[tx][ty + r];
}
"""
# With one more element a row, columns have two-way conflicts still: two rows of the work-group are a sub-group.
TRANSPOSE_16 = """
__global__ void transpose_16(float *y, const float *x, int n) {
  __shared__ float tile[16][18];
  int tx = threadIdx.x, ty = threadIdx.y, bx = blockIdx.x * 16, by = blockIdx.y * 16;
  tile[ty][tx] = x[(by + ty) * n + bx + tx];
  __syncthreads();
  y[(bx + ty) * n + by + tx] = tile[tx][ty];
}
"""
# Each row of a block of 16 is weighed with powers.
WEIGHED_BLOCKS = """
__global__ void weighed_blocks(float *y, const float *x, float a, int n) {
  __shared__ float tile[16][17];
  int tx = threadIdx.x, ty = threadIdx.y, bx = blockIdx.x * 16, by = blockIdx.y * 16;
  tile[ty][tx] = x[(by + ty) * n + bx + tx];
  __syncthreads();
  float s = 0.0f, w = ty;
  for (int k = 0; k < 16; k++) {
    s += w * tile[tx][k];
    w *= a;
  }
  y[(bx + ty) * n + by + tx] = s;
}
"""
NAIVE_TRANSPOSE = """
__global__ void transpose(float *y, const float *x, int n) {
  int i = blockIdx.x * 32 + threadIdx.x;
  for (int r = 0; r < 32; r += 8) {
    int j = blockIdx.y * 32 + threadIdx.y + r;
    float v = x[i * n + j];
    y[j * n + i] = v;
  }
}
"""
CURVED_TRANSPOSE = TRANSPOSE.replace(
    "y[(bx + ty + r) * n + by + tx] = tile[tx][ty + r];",
    """{
    float v = tile[tx][ty + r];
    y[(bx + ty + r) * n + by + tx] = (v - 0.5f) * (v + 0.5f) * (v - 1.5f) * (v + 1.5f) * (v - 2.5f);
  }""",
)

MATMUL = """
__global__ void matmul(float *c, const float *a, const float *b, int n) {
  __shared__ float sa[32][32];
  __shared__ float sb[32][32];
  int tx = threadIdx.x, ty = threadIdx.y;
  int col = blockIdx.x * 32 + tx, row = blockIdx.y * 32 + ty;
  float acc = 0.0f;
  for (int k0 = 0; k0 < n; k0 += 32) {
    sa[ty][tx] = a[row * n + k0 + tx];
    sb[ty][tx] = b[(k0 + ty) * n + col];
    __syncthreads();
    for (int k = 0; k < 32; k++) acc += sa[ty][k] * sb[k][tx];
    __syncthreads();
  }
  c[row * n + col] = acc;
}
"""
MATMUL_16 = MATMUL.replace("32", "16")
NAIVE_MATMUL_16 = """
__global__ void matmul(float *c, const float *a, const float *b, int n) {
  int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
  float acc = 0.0f;
  for (int k = 0; k < n; k++) acc += a[row * n + k] * b[k * n + col];
  c[row * n + col] = acc;
}
"""
SCALED_MATMUL = MATMUL.replace(
    "acc += sa[ty][k] * sb[k][tx];",
    """{
      float v = 1.5f * sa[ty][k];
      acc += v * sb[k][tx];
    }""",
)
# The second tile is stored transposed.
TURNED_MATMUL = (
    MATMUL.replace("sb[32][32]", "sb[32][33]").replace("sb[ty][tx]", "sb[tx][ty]").replace("sb[k][tx]", "sb[tx][k]")
)
TURNED_MATMUL_16 = TURNED_MATMUL.replace("33", "18").replace("32", "16")
# Four rows for each work-item.
BLOCKED_MATMUL = """
__global__ void blocked_matmul(float *c, const float *a, const float *b, int n) {
  __shared__ float sa[32][32];
  __shared__ float sb[32][32];
  int tx = threadIdx.x, ty = threadIdx.y;
  int col = blockIdx.x * 32 + tx, row = blockIdx.y * 32 + ty;
  float c0 = 0.0f, c1 = 0.0f, c2 = 0.0f, c3 = 0.0f;
  for (int k0 = 0; k0 < n; k0 += 32) {
    for (int r = 0; r < 32; r += 8) {
      sa[ty + r][tx] = a[(row + r) * n + k0 + tx];
      sb[ty + r][tx] = b[(k0 + ty + r) * n + col];
    }
    __syncthreads();
    for (int k = 0; k < 32; k++) {
      float v = sb[k][tx];
      c0 += sa[ty][k] * v;
      c1 += sa[ty + 8][k] * v;
      c2 += sa[ty + 16][k] * v;
      c3 += sa[ty + 24][k] * v;
    }
    __syncthreads();
  }
  c[row * n + col] = c0;
  c[(row + 8) * n + col] = c1;
  c[(row + 16) * n + col] = c2;
  c[(row + 24) * n + col] = c3;
}
"""

STENCIL = """
__global__ void stencil(float *y, const float *x, int n) {
  int j = blockIdx.x * 32 + threadIdx.x;
  int i = blockIdx.y * 8 + threadIdx.y;
  if (i > 0 && i < n - 1 && j > 0 && j < n - 1)
    y[i * n + j] = 0.25f * (x[i * n + j - 1] + x[i * n + j + 1] + x[(i - 1) * n + j] + x[(i + 1) * n + j]);
}
"""
# Arrays with one more row above and below: no element is left out.
VERTICAL = """
__global__ void vertical(float *y, const float *x, int n) {
  int j = blockIdx.x * blockDim.x + threadIdx.x;
  int i = blockIdx.y * blockDim.y + threadIdx.y;
  y[i * n + j] = x[i * n + j] + x[(i + 1) * n + j] + x[(i + 2) * n + j];
}
"""
HEAT = """
__global__ void heat(float *y, const float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
  for (int k = 1; k < n - 1; k++)
    if (i > 0 && i < n - 1 && j > 0 && j < n - 1)
      y[(k * n + j) * n + i] = 0.4f * x[(k * n + j) * n + i] + 0.1f * (x[(k * n + j) * n + i - 1]
        + x[(k * n + j) * n + i + 1] + x[(k * n + j - 1) * n + i] + x[(k * n + j + 1) * n + i]
        + x[((k - 1) * n + j) * n + i] + x[((k + 1) * n + j) * n + i]);
}
"""
REACTION = """
__global__ void reaction(float *y, const float *x, int n) {
  int j = blockIdx.x * 32 + threadIdx.x, i = blockIdx.y * 8 + threadIdx.y;
  float u = x[(i + 1) * n + j];
  float r = u * (1.0f - u) * (u - 0.3f) * (u + 0.7f) * 0.6f;
  y[(i + 1) * n + j] = x[i * n + j] - u + x[(i + 2) * n + j] + r;
}
"""
TURNED = TRANSPOSE.replace("transpose", "turned").replace(
    "= x[(by + ty + r) * n + bx + tx];", "= x[(by + ty + r) * n + bx + tx] + x[(by + ty + r + 1) * n + bx + tx];"
)
HALVES = """
__global__ void halves(float *y, const float *x, float a, float b, int n) {
  int j = blockIdx.x * 32 + threadIdx.x, i = blockIdx.y * 8 + threadIdx.y;
  float v = x[i * n + j] + x[(i + 1) * n + j];
  if (j < n / 2) for (int k = 0; k < 256; k++) v = a * v + b; else for (int k = 0; k < 256; k++) v = b * (v - a);
  y[i * n + j] = v;
}
"""
BOX = """
__global__ void box(float *y, const float *x) {
  __shared__ float s[320];
  int t = threadIdx.x, i = blockIdx.x * 256 + t;
  s[t] = x[i];
  if (t < 64) s[t + 256] = x[i + 256];
  __syncthreads();
  float sum = 0.0f;
  for (int k = 0; k < 65; k++) sum += s[t + k];
  y[i] = sum;
}
"""
NAIVE_BOX = """
__global__ void box(float *y, const float *x) {
  int t = threadIdx.x, i = blockIdx.x * 256 + t;
  float sum = 0.0f;
  for (int k = 0; k < 65; k++) sum += x[i + k];
  y[i] = sum;
}
"""
DISTANCES = MATMUL_16.replace("matmul", "distances").replace("sa[ty][k] * sb[k][tx]", "fabsf(sa[ty][k] - sb[k][tx])")
NAIVE_DISTANCES = NAIVE_MATMUL_16.replace("matmul", "distances").replace(
    "a[row * n + k] * b[k * n + col]", "fabsf(a[row * n + k] - b[k * n + col])"
)

BODIES = """
__global__ void bodies(float *f, const float *x, int n) {
  __shared__ float s[256];
  int t = threadIdx.x, i = blockIdx.x * 256 + t;
  float xi = x[i], sum = 0.0f;
  for (int j0 = 0; j0 < n; j0 += 256) {
    s[t] = x[j0 + t];
    __syncthreads();
    for (int j = 0; j < 256; j++) sum += fabsf(s[j] - xi);
    __syncthreads();
  }
  f[i] = sum;
}
"""
NAIVE_BODIES = """
__global__ void bodies(float *f, const float *x, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  float xi = x[i], sum = 0.0f;
  for (int j = 0; j < n; j++) sum += fabsf(x[j] - xi);
  f[i] = sum;
}
"""
# Bodies at whole numbers: nothing to load.
LATTICE = """
__global__ void lattice(float *f, const float *x, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float xi = x[i], sum = 0.0f, at = 0.0f;
  for (int j = 0; j < m; j++) {
    float d = (at - xi) * 0.5f;
    sum += d * d;
    at += 1.0f;
  }
  f[i] = sum;
}
"""
KINDS = """
__global__ void kinds(float *f, const float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i], s = 0.0f;
  if (i < n / 2) for (int j = 0; j < 256; j++) s += fabsf(v - j); else for (int j = 0; j < 256; j++) s += fabsf(v + j);
  f[i] = s;
}
"""
