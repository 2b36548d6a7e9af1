"""Cases from OpInfo, torch's database of operator samples."""
