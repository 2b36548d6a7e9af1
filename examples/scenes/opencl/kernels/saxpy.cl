__kernel void saxpy(__global const float *x, __global float *y, float alpha, int size) {
    int i = get_global_id(0);
    if (i < size) y[i] += alpha * x[i];
}
