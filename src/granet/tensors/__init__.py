"""Tensors whatever they stand for: many as slices of one, small ones on their way to a device, masks as bits."""
