"""Operations on batch-innermost maps: NumPy references and CUDA kernels. See kernels/README.md."""
