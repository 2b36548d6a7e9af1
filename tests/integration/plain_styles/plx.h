#ifndef PLX_H
#define PLX_H
#define PLX_ESTIMATE 1u
#define PLX_MEASURE 2u
typedef struct plx_gemm_s *plx_gemm;
typedef struct plxf_plan_s *plxf_plan;
typedef struct plxd_plan_s *plxd_plan;
/* C = A B, rows dense; NULL if a size is negative */
plx_gemm plx_gemm_create(int m, int n, int k, unsigned flags);
void plx_gemm_execute(plx_gemm plan, const float *a, const float *b, float *c);
int plx_gemm_destroy(plx_gemm plan);
/* plans bound to memory, as FFTW */
plxf_plan plxf_plan_softmax(int n, int howmany, float *in, float *out, unsigned flags);
void plxf_execute(const plxf_plan plan);
void plxf_destroy_plan(plxf_plan plan);
plxd_plan plxd_plan_softmax(int n, int howmany, double *in, double *out, unsigned flags);
void plxd_execute(const plxd_plan plan);
void plxd_destroy_plan(plxd_plan plan);
#endif
