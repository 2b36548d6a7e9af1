"""C libraries: their headers and memory (``ffi``), and a library behind a mapping as a backend (``library``)."""
