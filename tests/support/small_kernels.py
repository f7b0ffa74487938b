"""Small kernels of each generator of the catalog."""

# Tags that make one or more small kernels of each generator.
SMALL = {
    "matmul_sq": "dtype:float32,float64 prefetch:True,False lsize_0:8 lsize_1:8 groups_fit:True n:16,24",
    "matmul_sq_mem":
        "dtype:float32 prefetch:True,False lsize_0:8 lsize_1:8 groups_fit:True n:16 keep:aLD,bLD,cST,aLD_bLD",
    "matmul_sq_core": "dtype:float32 prefetch:True,False lsize_0:4 lsize_1:4 groups_fit:True confined:2 n:12",
    "dg_diff_core": "dtype:float32 lsize_0:4 lsize_1:4 groups_fit:True confined:2 nunit_nodes:12 nelements:12",
    "fdiff_core": "dtype:float32 tile:6,8 groups_fit:True confined:1,2 n:24",
    "dg_diff": "dtype:float32,float64 lsize_0:4 lsize_1:4 groups_fit:True nunit_nodes:8 nelements:12",
    "dg_diff_mem": "dtype:float32 lsize_0:4 lsize_1:4 groups_fit:True nunit_nodes:8 nelements:12",
    "fdiff": "dtype:float32,float64 tile:6,8 groups_fit:True n:12",
    "fdiff_mem": "dtype:float32 tile:6,8 groups_fit:True n:12 keep:uLD,resST,uLD_resST",
    "matmul_rb": "dtype:float32,float64 rows:2 columns:1,4 lsize:4 groups_fit:True n:16,32",
    "matmul_rb_mem": "dtype:float32 rows:2 columns:4 lsize:4 groups_fit:True n:16 keep:aLD,bLD,cST,aLD_bLD",
    "transpose": "dtype:float32,float64 lsize:4 groups_fit:True,False n:12",
    "transpose_mem": "dtype:float32 lsize:4 groups_fit:True n:12 keep:aLD,outST,aLD_outST",
    "gemv": "dtype:float32,float64 lsize_0:8 groups_fit:True n:16 m:24",
    "gemv_mem": "dtype:float32 lsize_0:8 groups_fit:True n:16 m:24 keep:aLD,xLD,yST,aLD_xLD",
    "axpy": "dtype:float32,float64 lsize_0:8 groups_fit:True,False n:40",
    "axpy_mem": "dtype:float32 lsize_0:8 groups_fit:True n:40 keep:xLD,yLD,yST,xLD_yLD,yLD_yST",
    "dot": "dtype:float32,float64 lsize_0:8 ngroups:4,16 groups_fit:True,False n:256",
    "dot_mem": "dtype:float32 lsize_0:8 ngroups:4 groups_fit:True n:256",
    "matmul_batch": "dtype:float32,float64 order:3,4 per_group:4 groups_fit:True,False nbatch:8",
    "matmul_batch_mem": "dtype:float32 order:4 per_group:2 groups_fit:True nbatch:6 keep:aLD,bLD,cST,aLD_bLD",
    "nbody": "dtype:float32,float64 lsize_0:8 groups_fit:True,False n:24",
    "nbody_mem": "dtype:float32 lsize_0:8 groups_fit:True n:24 keep:ownLD,bodyLD,accST,ownLD_bodyLD",
    "flops_add_pattern": "dtype:float32 groups_fit:True lid_stride_1:16 nelements:256 m:64",
    "flops_mul_pattern": "dtype:float64 groups_fit:True lid_stride_1:16 nelements:256 m:64 nvars:16",
    "flops_madd_pattern": "dtype:float32 groups_fit:True lid_stride_1:16 nelements:256 m:64",
    "flops_add_chain": "dtype:float32 groups_fit:True,False lid_stride_1:16 nelements:256 m:5",
    "flops_madd_chain": "dtype:float64 groups_fit:True lid_stride_1:16 nelements:256 m:5",
    "flops_div_pattern": "dtype:float32 groups_fit:True lid_stride_1:16 nelements:256 m:64 nvars:16",
    "flops_sqrt_pattern": "dtype:float64 groups_fit:False lid_stride_1:24 nelements:480 m:64 nvars:16",
    "flops_rsqrt_pattern": "dtype:float32,float64 groups_fit:True lid_stride_1:16 nelements:256 m:3",
    "flops_exp_pattern": "dtype:float32,float64 groups_fit:True lid_stride_1:16 nelements:256 m:3",
    "flops_sin_pattern": "dtype:float32,float64 groups_fit:True lid_stride_1:16 nelements:256 m:3",
    "flops_cos_pattern": "dtype:float32,float64 groups_fit:True lid_stride_1:16 nelements:256 m:3",
    **{
        f"iops_{operation}_pattern": "groups_fit:True lid_stride_1:16 nelements:256 m:64,128 nvars:16"
        for operation in ("add", "mul", "madd", "bit", "shift")
    },
    # Differences become multiply-adds in compilers, and the oracle knows the functions below alone.
    "op_chain": "operation:mul,madd,div,sqrt,rsqrt,exp,sin,cos dtype:float32,float64 lsize_0:8 chains:2 nitems:16 m:3",
    "op_map": "operation:madd,div,sqrt dtype:float32,float64 applied:1,2 lsize_0:8 nitems:24",
    "gmem_gather": "dtype:float32 lsize_0:8 spread:1,17 window:64 nitems:24 m:3",
    "grid_scale": "store:stream,update along:rows,columns n_arrays:1,3 dtype:float64 lsize_0:4 lsize_1:2 nx:8 ny:12",
    "loop_sum": "dtype:float32 form:plain,overlap,cut lsize_0:8 nitems:24 m:3",
    "lmem_exchange": "dtype:float32 nvars:1,3 halo:1,2 lsize_0:8 ngroups:3 m:3",
    "gmem_pattern": "dtype:float32,float64 groups_fit:True,False lid_stride_1:32 n_arrays:1,3 nelements:512",
    "gmem_load": "dtype:float32,float64 lsize_0:16 lid_stride_0:1,2,32 chains:2 nelements:4096 m:4,8",
    "gmem_store": "dtype:float32 lsize_0:16 lid_stride_0:1,3 nelements:1200,1920 m:5",
    **{
        f"gmem_{operation}": "dtype:float32,float64 groups_fit:True,False lsize_0:16 width:1,2,4,16 nelements:768,784"
        for operation in ("copy", "scale", "add", "triad")
    },
    "gmem_reuse": "dtype:float32 lsize_0:16 by:groups,items afr:2,3 nelements:768 m:4,8",
    "gmem_uniform": "dtype:float32 lsize_0:16 ngroups:3 m:8",
    "gmem_working_set":
        "dtype:float64 lsize_0:16 lid_stride_0:1,4 shared:True,False chains:2 working_set:256,512 ngroups:3 m:3",
    "lmem_move": "dtype:float32 lid_stride_1:16 nelements:256 m:24",
    "lmem_madd": "dtype:float32 lid_stride_1:16 nelements:256 m:3 depth:16,32",
    "lmem_load": "dtype:float32,float64 lsize_0:16 lid_stride_0:1,2,32 chains:2 ngroups:3 m:8,24",
    "lmem_broadcast": "dtype:float32,float64 lsize_0:16 chains:1,3 ngroups:3 m:6,24",
    "launches": "dtype:float32 lsize_0:16 stages:1,2,4 ngroups:3",
    "small_groups": "dtype:float32 lsize_0:1,7,16 nitems:112,336",
    "barrier_local": "dtype:float32 lid_stride_1:16 nelements:256 m:3",
    "empty": "ngroups:4",
    "overlap_ratio": "dtype:float32 lid_stride_1:16 nelements:256 m:4,16",
    "overlap_madd": "dtype:float32 lsize_0:8 lsize_1:8 groups_fit:True,False n:16 m:3 chains:2",
    "stencil2d": "shape:star,box radius:2 dtype:float64 lsize_0:4 lsize_1:2 groups_fit:False nx:9 ny:5",
    "stencil2d_mem": "shape:box radius:2 dtype:float64 lsize_0:4 lsize_1:2 nx:8 ny:4 keep:uXLD,uYLD_uDLD_vST",
    "stencil3d": "points:19,25 variant:plain,column,tile dtype:float64 lsize_0:4 lsize_1:2 chunk:3 groups_fit:False "
        "nx:7 ny:3 nz:5",
    "stencil3d_mem": "points:7 variant:plain,tile lsize_0:4 lsize_1:2 chunk:2 nx:8 ny:4 nz:4 keep:uYLD,uTLD,uZLD_vST",
    "conv2d": "filter_size:3 tile_x:2 tile_y:3 local:True,False dtype:float32 lsize_0:4 lsize_1:2 groups_fit:False "
        "nx:21 ny:11",
    "conv2d_mem": "filter_size:3 tile_x:2 tile_y:2 dtype:float64 lsize_0:4 lsize_1:2 groups_fit:False nx:13 ny:7 "
        "keep:inLD,inTLD_filterLD_outST",
    "lbm_d3q15": "collide:bgk dtype:float64 lsize_0:4 lsize_1:2 lsize_2:2 chunk:2 groups_fit:False nx:7 ny:3 nz:5",
    "lbm_d3q15_mem": "collide:none dtype:float32 lsize_0:4 lsize_1:2 chunk:2 nx:8 ny:4 nz:4 keep:fDLD,fXLD_fYLD_gST",
    "pirk":
        "kernel:lc,up,rhs_lc problem:heat3d,wave3d radius:1 dtype:float32 lsize_0:4 lsize_1:2 chunk:2 nx:8 ny:4 nz:4",
    "wave3d": "radius:1,3 speed:array variant:plain dtype:float32 lsize_0:4 lsize_1:2 chunk:2 nx:8 ny:4 nz:4",
    "wave3d_mem": "radius:2 speed:array variant:tile dtype:float64 lsize_0:4 lsize_1:2 chunk:2 nx:8 ny:4 nz:4 "
        "keep:uTLD,uZLD_oldLD_speedLD_newST",
    "gsrb": "variant:fp,stride2 dtype:float32 lsize_0:4 lsize_1:2 chunk:2 groups_fit:False nx:10 ny:3 nz:3",
}  # fmt: skip
