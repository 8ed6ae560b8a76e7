"""One module per output format; its file name is the name of the format."""
