"""Tensor utilities: many tensors as slices of one, shards of one, small ones sent to a device, masks as bits."""
