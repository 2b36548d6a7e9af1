"""JAX as a guest: its public functions as a backend. JAX is imported by :mod:`optest.jax.backend` alone."""
