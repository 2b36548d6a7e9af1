"""What is kept on disk: run directories and journals, one writer each, and how they are read back."""
