"""C libraries: loading, signatures from headers, checked calls, handles, memory that optest owns.

Nothing is loaded at import. Reading headers (:mod:`optest.clib.ffi.headers`) needs pycparser and a C
compiler's preprocessor; everything else needs neither.
"""
