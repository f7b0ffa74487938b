// Products of two square matrices: one work-item for each element of c.
#ifndef TILE
#define TILE 16
#endif

__kernel void naive(__global const float *a, __global const float *b, __global float *c, int n)
{
    int row = get_global_id(1), column = get_global_id(0);
    if (row >= n || column >= n)
        return;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k)
        sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}

// For multiples of TILE; work-groups of TILE by TILE.
__kernel void tiled(__global const float *a, __global const float *b, __global float *c, int n)
{
    __local float a_tile[TILE][TILE], b_tile[TILE][TILE];
    int x = get_local_id(0), y = get_local_id(1);
    int row = get_group_id(1) * TILE + y, column = get_group_id(0) * TILE + x;
    float sum = 0.0f;
    for (int block = 0; block < n / TILE; ++block) {
        a_tile[y][x] = a[row * n + block * TILE + x];
        b_tile[y][x] = b[(block * TILE + y) * n + column];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < TILE; ++k)
            sum += a_tile[y][k] * b_tile[k][x];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[row * n + column] = sum;
}
