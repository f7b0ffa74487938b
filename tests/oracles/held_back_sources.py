"""Kernels without flaws as engineers write them, into which `held_back_kernels` plants one flaw each."""

# Colours in planes.
NEGATIVE = """
__global__ void negative(float *y, const float *rgb) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = 1.0f - rgb[i];
}
"""
GREY = """
__global__ void grey(float *y, const uchar4 *rgba) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  uchar4 p = rgba[i];
  float r = p.x, g = p.y, b = p.z;
  y[i] = 0.299f * r + 0.587f * g + 0.114f * b;
}
"""
GREY_CL = """
__kernel void grey(__global uchar *y, __global const uchar4 *rgba) {
  int i = get_global_id(0);
  uchar4 p = rgba[i];
  y[i] = (77 * p.x + 150 * p.y + 29 * p.z) >> 8;
}
"""
UPSAMPLE_CL = """
__kernel void upsample(__global float *y, __global const float *x, int n) {
  int j = get_global_id(0), i = get_global_id(1);
  y[i * n + j] = x[i / 2 * (n / 2) + j / 2];
}
"""
# A filmic curve of tones.
TONES = """
__global__ void tones(float *y, const float *x) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float u = x[i];
  y[i] = (u * (2.51f * u + 0.03f)) / (u * (2.43f * u + 0.59f) + 0.14f);
}
"""
BLUR = """
__global__ void blur(float *y, const float *x, int n) {
  int j = blockIdx.x * 32 + threadIdx.x, i = blockIdx.y * 8 + threadIdx.y;
  int c = (i + 1) * n + j;
  y[c] = 0.25f * x[c - n] + 0.5f * x[c] + 0.25f * x[c + n];
}
"""
GAIN = """
__global__ void gain(float4 *y, const float4 *x, float a, float b) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 u = x[i];
  y[i] = make_float4(a * u.x + b, a * u.y + b, a * u.z + b, u.w);
}
"""
# A quarter turn of an image.
ROTATE = """
__global__ void rotate(float *y, const float *x, int n) {
  __shared__ float tile[32][33];
  int tx = threadIdx.x, ty = threadIdx.y, bx = blockIdx.x * 32, by = blockIdx.y * 32;
  for (int r = 0; r < 32; r += 8) tile[ty + r][tx] = x[(by + ty + r) * n + bx + tx];
  __syncthreads();
  for (int r = 0; r < 32; r += 8) y[(bx + ty + r) * n + n - 32 - by + tx] = tile[31 - tx][ty + r];
}
"""

PARTICLES = """
__global__ void push(float *x, const float *vx, float dt) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  x[i] += dt * vx[i];
}
"""
PARTICLES_AS_STRUCTS = """
struct Particle { float x, y, z, vx, vy, vz, mass, charge; };
__global__ void push(Particle *p, float dt) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = p[i].vx;
  p[i].x += dt * v;
}
"""
# The nearest of 64 centres in four dimensions.
NAIVE_NEAREST = """
__global__ void nearest(float *y, const float4 *x, const float *c) {
  int t = threadIdx.x, i = blockIdx.x * 256 + t;
  float4 u = x[i];
  float least = 1e30f;
  for (int k = 0; k < 64; k++) {
    float a = u.x - c[4 * k];
    float b = u.y - c[4 * k + 1];
    float d = u.z - c[4 * k + 2];
    float e = u.w - c[4 * k + 3];
    least = fminf(least, a * a + b * b + d * d + e * e);
  }
  y[i] = least;
}
"""
NEAREST = NAIVE_NEAREST.replace("c[4", "s[4").replace(
    "  float4 u", "  __shared__ float s[256];\n  s[t] = c[t];\n  __syncthreads();\n  float4 u"
)

_ROW = "  int lane = threadIdx.x, row = blockIdx.x * 8 + threadIdx.y;\n"
_SUM = "  for (int d = 16; d > 0; d /= 2) s += __shfl_xor_sync(0xffffffff, s, d);\n"
# A sub-group for each row.
ROW_NORMS = f"""
__global__ void row_norms(float *y, const float *x, int n) {{
{_ROW}  float s = 0.0f;
  for (int k = 0; k < n; k += 32) {{
    float v = x[row * n + k + lane];
    s += v * v;
  }}
{_SUM}  if (lane == 0) y[row] = sqrtf(s);
}}
"""
NAIVE_ROW_NORMS = """
__global__ void row_norms(float *y, const float *x, int n) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  float s = 0.0f;
  for (int k = 0; k < n; k++) {
    float v = x[row * n + k];
    s += v * v;
  }
  y[row] = sqrtf(s);
}
"""
GEMV = f"""
__global__ void gemv(float *y, const float *a, const float *x, int n) {{
{_ROW.replace("8", "4")}  float s = 0.0f;
  for (int k = 0; k < n; k += 32) s += a[row * n + k + lane] * x[k + lane];
{_SUM}  if (lane == 0) y[row] = s;
}}
"""
SOFTMAX = f"""
__global__ void softmax(float *y, const float *x, int n) {{
{_ROW}  float top = -1e30f, s = 0.0f;
  for (int k = 0; k < n; k += 32) top = fmaxf(top, x[row * n + k + lane]);
  for (int d = 16; d > 0; d /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, d));
  for (int k = 0; k < n; k += 32) s += expf(x[row * n + k + lane] - top);
{_SUM}  for (int k = 0; k < n; k += 32) y[row * n + k + lane] = expf(x[row * n + k + lane] - top) / s;
}}
"""
RMS_NORM = f"""
__global__ void rms_norm(float *y, const float *x, int n) {{
{_ROW}  float s = 0.0f;
  for (int k = 0; k < n; k += 32) {{
    float v = x[row * n + k + lane];
    s += v * v;
  }}
{_SUM}  float scale = rsqrtf(s / n + 1e-5f);
  for (int k = 0; k < n; k += 32) y[row * n + k + lane] = x[row * n + k + lane] * scale;
}}
"""
# Rows of 32 elements, each scaled by what many steps make of its sum.
ROW_SCALES = f"""
__global__ void row_scales(float *y, const float *x) {{
  __shared__ float m[8];
  int t = threadIdx.x, i = blockIdx.x * 256 + t;
  float v = x[i], s = v;
{_SUM}  m[t / 32] = s;
  __syncthreads();
  if (t < 8) {{
    float r = m[t];
    for (int k = 0; k < 256; k++) r = r + 0.1f * (1.0f - r * r);
    m[t] = r;
  }}
  __syncthreads();
  y[i] = v * m[t / 32];
}}
"""
# Logarithms of sums of exponentials, of 16 logits for each work-item.
LOG_SUM_EXP = """
__global__ void log_sum_exp(float *y, const float *x) {
  __shared__ float buf[64][33];
  int t = threadIdx.x;
  for (int k = 0; k < 16; k++) buf[4 * k + t / 32][t % 32] = x[blockIdx.x * 2048 + k * 128 + t];
  __syncthreads();
  float s = 0.0f;
  for (int k = 0; k < 16; k++) s += expf(buf[t / 2][t % 2 * 16 + k]);
  y[blockIdx.x * 128 + t] = logf(s);
}
"""

# Products of 4 x 4 matrices with vectors, a matrix for each work-item.
BATCHED = """
__global__ void batched(float *y, const float *a, const float *x, int n) {
  int b = blockIdx.x * blockDim.x + threadIdx.x;
  for (int r = 0; r < 4; r++) {
    float s = 0.0f;
    for (int c = 0; c < 4; c++) s += a[(4 * r + c) * n + b] * x[c * n + b];
    y[r * n + b] = s;
  }
}
"""
# Traces of 4 x 4 matrices, a matrix for each work-item.
TRACES = """
__global__ void traces(float *y, const float *a, int n) {
  int b = blockIdx.x * blockDim.x + threadIdx.x;
  float s = 0.0f;
  for (int k = 0; k < 4; k++) s += a[5 * k * n + b];
  y[b] = s;
}
"""
# Q K^T of each head.
SCORES = """
__global__ void scores(float *c, const float *q, const float *kk, float scale, int n, int d) {
  __shared__ float sq[32][32];
  __shared__ float sk[32][33];
  int tx = threadIdx.x, ty = threadIdx.y, h = blockIdx.z * n;
  int col = blockIdx.x * 32, row = blockIdx.y * 32;
  float c0 = 0.0f, c1 = 0.0f, c2 = 0.0f, c3 = 0.0f;
  for (int k0 = 0; k0 < d; k0 += 32) {
    for (int r = 0; r < 32; r += 8) {
      sq[ty + r][tx] = q[(h + row + ty + r) * d + k0 + tx];
      sk[ty + r][tx] = kk[(h + col + ty + r) * d + k0 + tx];
    }
    __syncthreads();
    for (int k = 0; k < 32; k++) {
      float v = sk[tx][k];
      c0 += sq[ty][k] * v;
      c1 += sq[ty + 8][k] * v;
      c2 += sq[ty + 16][k] * v;
      c3 += sq[ty + 24][k] * v;
    }
    __syncthreads();
  }
  c[(h + row + ty) * n + col + tx] = scale * c0;
  c[(h + row + ty + 8) * n + col + tx] = scale * c1;
  c[(h + row + ty + 16) * n + col + tx] = scale * c2;
  c[(h + row + ty + 24) * n + col + tx] = scale * c3;
}
"""
# Q K^T, where K is stored transposed.
LOGITS = """
__global__ void logits(float *c, const float *q, const float *kt, float scale, int n, int d) {
  __shared__ float sq[16][16];
  __shared__ float sk[16][16];
  int tx = threadIdx.x, ty = threadIdx.y, col = blockIdx.x * 16 + tx, row = blockIdx.y * 16 + ty;
  float s = 0.0f;
  for (int k0 = 0; k0 < d; k0 += 16) {
    sq[ty][tx] = q[row * d + k0 + tx];
    sk[ty][tx] = kt[(k0 + ty) * n + col];
    __syncthreads();
    for (int k = 0; k < 16; k++) s += sq[ty][k] * sk[k][tx];
    __syncthreads();
  }
  c[row * n + col] = scale * s;
}
"""
NAIVE_LOGITS = """
__global__ void logits(float *c, const float *q, const float *kt, float scale, int n, int d) {
  int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
  float s = 0.0f;
  for (int k = 0; k < d; k++) s += q[row * d + k] * kt[k * n + col];
  c[row * n + col] = scale * s;
}
"""

# D2Q9: rows of n cells and 32 more, one row more above and below.
LATTICE = """
__device__ float equilibrium(float w, float cu, float uu) {
  return w * (1.0f + 3.0f * cu + 4.5f * cu * cu - 1.5f * uu);
}
__global__ void lattice(float *g, const float *f, float omega, int n) {
  int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  int p = n + 32, m = (n + 2) * p, c = (i + 1) * p + j;
  float f0 = f[c], f1 = f[m + c - 1], f2 = f[2 * m + c + 1], f3 = f[3 * m + c - p], f4 = f[4 * m + c + p];
  float f5 = f[5 * m + c - p - 1], f6 = f[6 * m + c + p + 1], f7 = f[7 * m + c + p - 1], f8 = f[8 * m + c - p + 1];
  float rho = f0 + f1 + f2 + f3 + f4 + f5 + f6 + f7 + f8;
  float ux = (f1 - f2 + f5 - f6 + f7 - f8) / rho, uy = (f3 - f4 + f5 - f6 - f7 + f8) / rho;
  float uu = ux * ux + uy * uy, a = omega * rho * 0.1111111f, d = omega * rho * 0.0277778f, b = 1.0f - omega;
  g[c] = b * f0 + 4.0f * a * (1.0f - 1.5f * uu);
  g[m + c] = b * f1 + equilibrium(a, ux, uu);
  g[2 * m + c] = b * f2 + equilibrium(a, -ux, uu);
  g[3 * m + c] = b * f3 + equilibrium(a, uy, uu);
  g[4 * m + c] = b * f4 + equilibrium(a, -uy, uu);
  g[5 * m + c] = b * f5 + equilibrium(d, ux + uy, uu);
  g[6 * m + c] = b * f6 + equilibrium(d, -ux - uy, uu);
  g[7 * m + c] = b * f7 + equilibrium(d, ux - uy, uu);
  g[8 * m + c] = b * f8 + equilibrium(d, uy - ux, uu);
}
"""
# One step in time; rows above and below are the halo.
WAVE = """
__global__ void wave(float *next, const float *u, float a, float b, int n) {
  int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  int c = (i + 1) * n + j;
  next[c] = a * u[c] - next[c] + b * (u[c - n] + u[c + n] + u[c - 1] + u[c + 1]);
}
"""
MAGNETIC = """
__global__ void magnetic(float *hx, float *hy, const float *e, float a, int n) {
  int j = blockIdx.x * 32 + threadIdx.x, i = blockIdx.y * 8 + threadIdx.y;
  hx[i * n + j] -= a * (e[(i + 1) * n + j] - e[i * n + j]);
  hy[i * n + j] += a * (e[i * n + j + 1] - e[i * n + j]);
}
"""

# Prices of m options on each share, which pay one unit.
OPTIONS = """
__global__ void options(float *y, const float *price, float least, float step, float r, float v, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float u = price[i], strike = least, sum = 0.0f;
  for (int j = 0; j < m; j++) {
    float d = (logf(u / strike) + r - 0.5f * v * v) / v;
    float k = 1.0f / (1.0f + 0.2316419f * d);
    float p = k * (0.3193815f + k * (-0.3565638f + k * (1.781478f + k * (-1.821256f + k * 1.330274f))));
    sum += expf(-r) * (1.0f - 0.3989423f * expf(-0.5f * d * d) * p);
    strike += step;
  }
  y[i] = sum;
}
"""
# A power series of 256 terms.
NAIVE_SERIES = """
__global__ void series(float *y, const float *x, const float *c) {
  int t = threadIdx.x, i = blockIdx.x * 256 + t;
  float u = x[i], v = 0.0f;
  for (int k = 0; k < 256; k++) v = v * u + c[k];
  y[i] = v;
}
"""
SERIES = NAIVE_SERIES.replace("c[k]", "s[k]").replace(
    "  float u", "  __shared__ float s[256];\n  s[t] = c[t];\n  __syncthreads();\n  float u"
)
MANDELBROT = """
__global__ void mandelbrot(float *y, float x0, float cy, float step, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float cx = x0 + step * i, u = 0.0f, v = 0.0f;
  for (int k = 0; k < m; k++) {
    float s = u * u - v * v + cx;
    v = 2.0f * u * v + cy;
    u = s;
  }
  y[i] = u * u + v * v;
}
"""
CHEBYSHEV = """
__global__ void chebyshev(float *y, const float *x, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float u = x[i], a = 1.0f, b = u;
  for (int k = 0; k < m; k++) {
    float c = 2.0f * u * b - a;
    a = b;
    b = c;
  }
  y[i] = b;
}
"""
# Two laws of materials; the second takes many steps, too.
MATERIALS = """
__global__ void materials(float *y, const float *x, float a, float b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float u = x[i], v = u;
  if (i < n / 2) {
    for (int k = 0; k < 256; k++) v = v - a * (v * v - u);
  } else {
    for (int k = 0; k < 256; k++) v = u + b * v * (1.0f - v);
  }
  y[i] = v;
}
"""
# Every other row of an image is shaded.
SHADE = """
__global__ void shade(float *y, const float *x, float a, float b, int n) {
  int j = blockIdx.x * blockDim.x + threadIdx.x;
  int i = blockIdx.y * blockDim.y + threadIdx.y;
  float u = x[i * n + j], v = u;
  if (i % 2 == 0) for (int k = 0; k < 256; k++) v = a * v + b * u;
  y[i * n + j] = v;
}
"""
# One in eight particles has a charge.
CHARGED = """
__global__ void charged(float *vx, const float *ex, float a, float b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = vx[i], e = ex[i];
  if (i < n / 8) for (int k = 0; k < 512; k++) v = a * v + b * e;
  vx[i] = v;
}
"""
# Sums along columns of m rows.
PREFIX = """
__global__ void prefix(float *y, const float *x, int n, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float s = 0.0f;
  for (int k = 0; k < m; k++) {
    s += x[k * n + i];
    y[k * n + i] = s;
  }
}
"""
COMPLEX_PRODUCT = """
__global__ void complex_product(float2 *c, const float2 *a, const float2 *b) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float2 u = a[i], v = b[i];
  c[i] = make_float2(u.x * v.x - u.y * v.y, u.x * v.y + u.y * v.x);
}
"""
# One stage of an FFT, of pairs at a distance of 4096.
BUTTERFLY = """
__global__ void butterfly(float2 *x, float wr, float wi) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  int i = t / 4096 * 8192 + t % 4096;
  float2 a = x[i], b = x[i + 4096];
  float p = wr * b.x - wi * b.y, q = wr * b.y + wi * b.x;
  x[i] = make_float2(a.x + p, a.y + q);
  x[i + 4096] = make_float2(a.x - p, a.y - q);
}
"""
# Butterflies in m rounds; each lays results side by side, and then apart again.
EXCHANGE = """
__global__ void exchange(float *y, const float *x, float w, int m) {
  __shared__ float buf[32][33];
  __shared__ float row[1024];
  int t = threadIdx.x, g = blockIdx.x * 1024 + t;
  for (int k = 0; k < 4; k++) row[k * 256 + t] = x[g + k * 256];
  for (int round = 0; round < m; round++) {
    for (int k = 0; k < 2; k++) {
      float a = row[k * 256 + t], b = row[k * 256 + t + 512];
      buf[t / 8][t % 8 * 4 + k] = a + b;
      buf[t / 8][t % 8 * 4 + k + 2] = w * (a - b);
    }
    __syncthreads();
    for (int k = 0; k < 4; k++) row[k * 256 + t] = buf[8 * k + t / 32][t % 32];
    __syncthreads();
  }
  for (int k = 0; k < 4; k++) y[g + k * 256] = row[k * 256 + t];
}
"""
# One step of a bitonic sort, of pairs at a distance of 4096.
BITONIC = """
__global__ void bitonic(float *x) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  int i = t / 4096 * 8192 + t % 4096;
  float a = x[i], b = x[i + 4096];
  x[i] = fminf(a, b);
  x[i + 4096] = fmaxf(a, b);
}
"""
# Windows of columns in local memory, which may be larger than what is used of it.
WINDOW = """
__global__ void window(float *y, const float *x, int n, int m) {
  __shared__ float s[256];
  int t = threadIdx.x, i = blockIdx.x * 256 + t;
  for (int k = 0; k < m; k++) {
    s[t] = x[k * n + i];
    __syncthreads();
    y[k * n + i] = 0.5f * (s[t] + s[t / 32 * 32 + 31 - t % 32]);
    __syncthreads();
  }
}
"""
