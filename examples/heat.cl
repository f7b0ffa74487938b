// Heat in a body of nx x ny x nz points: a step in time, and means over places.
// The host program sets BLOCK_X, BLOCK_Y, PLANES and KEEP.
#ifndef BLOCK_X
#define BLOCK_X 32
#define BLOCK_Y 8
#define PLANES 1
#define KEEP 0
#endif

// Each work-item computes one point in each of PLANES planes. With KEEP it holds its column of points in registers.
__kernel __attribute__((reqd_work_group_size(BLOCK_X, BLOCK_Y, 1)))
void heat_step(__global const float *restrict old, __global float *restrict next, float c, int nx, int ny, int nz)
{
    int x = get_global_id(0), y = get_global_id(1), first = get_global_id(2) * PLANES;
    int plane = nx * ny;
    if (x < 1 || x >= nx - 1 || y < 1 || y >= ny - 1)
        return;
#if KEEP
    int start = max(first, 1) * plane + y * nx + x;
    float below = old[start - plane], here = old[start];
#endif
    for (int z = max(first, 1); z < min(first + PLANES, nz - 1); z++) {
        int i = z * plane + y * nx + x;
#if KEEP
        float above = old[i + plane];
        float around = old[i - 1] + old[i + 1] + old[i - nx] + old[i + nx];
        next[i] = here + c * (around + below + above - 6.0f * here);
        below = here;
        here = above;
#else
        float here = old[i];
        float around = old[i - 1] + old[i + 1] + old[i - nx] + old[i + nx];
        next[i] = here + c * (around + old[i - plane] + old[i + plane] - 6.0f * here);
#endif
    }
}

// Each of n points radiates heat, for as many steps as its entry in `steps` says.
__kernel void radiate(__global float *restrict heat, __global const int *restrict steps, float c, int n)
{
    int i = get_global_id(0);
    if (i >= n)
        return;
    float here = heat[i];
    int count = steps[i];
    for (int k = 0; k < count; k++)
        here -= c * here * here * here * here;
    heat[i] = here;
}
