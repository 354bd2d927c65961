"""The format of packed files, which `granet.checkpoint` reads and writes: container, layout, codes of masks."""
