"""Tensors made of tensors."""

from __future__ import annotations

import tensorflow as tf

COMPOSITE = (tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices)
