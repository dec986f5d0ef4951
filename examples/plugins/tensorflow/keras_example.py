"""One Keras model that behaves differently while it is trained, on each backend of Keras.

    KERAS_BACKEND=jax python keras_example.py

The model asks adprotocol whether it is differentiated, and its dropout branches by that. There is no `training`
argument, and no flag to set or to forget: a plain call evaluates, a differentiated one trains. The encoder is frozen by
Keras' own flag, so the question is about the values of `trainable_variables`.
"""

# ruff: noqa: ANN001, ANN201, ANN202, ANN204, T201  (a script; Keras reads its variable first)

import contextlib
import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np
from keras import ops

from adprotocol import cond, within_gradient

BACKEND = keras.backend.backend()


class Dropout(keras.layers.Layer):
    """Keep what a mask says, twice, where the model is differentiated."""

    def call(self, x, mask, *, differentiated):
        """Branch; under `tf.function` and `jax.jit` the answer is staged."""
        return cond(differentiated, lambda x: 2.0 * ops.multiply(mask, x), lambda x: x, x)


class Classifier(keras.Model):
    """An encoder, which is frozen, and a head."""

    def __init__(self):
        super().__init__()
        self.encoder = keras.layers.Dense(4, use_bias=False, kernel_initializer="identity", trainable=False)
        self.dropout = Dropout()
        self.head = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")

    def call(self, x, mask):
        """Ask once, about the parameters, and hand the answer down."""
        answer = within_gradient([variable.value for variable in self.trainable_variables])
        return self.head(self.dropout(self.encoder(x), mask, differentiated=answer))


def evaluate(model, x, mask):
    """Return the result of a plain call; in PyTorch, where a parameter is always recorded, without recording."""
    context = contextlib.nullcontext()
    if BACKEND == "torch":
        import torch

        context = torch.no_grad()
    with context:
        return model(x, mask)


def train(model, x, mask):
    """Return value and gradients for the trainable variables, compiled where Keras compiles."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        @tf.function
        def step(x, mask):
            with tf.GradientTape() as tape:
                value = ops.sum(model(x, mask))
            return value, tape.gradient(value, [variable.value for variable in model.trainable_variables])

        return step(x, mask)
    if BACKEND == "jax":
        import jax

        def loss(trained, fixed):
            return ops.sum(model.stateless_call(trained, fixed, x, mask)[0])

        groups = (model.trainable_variables, model.non_trainable_variables)
        return jax.jit(jax.value_and_grad(loss))(*([variable.value for variable in group] for group in groups))
    import torch

    value = ops.sum(model(x, mask))
    return value, torch.autograd.grad(value, [variable.value for variable in model.trainable_variables])


def show(array):
    """Return the numbers of an array."""
    return np.ravel(ops.convert_to_numpy(array)).tolist()


def main():
    """Evaluate, train and evaluate."""
    model = Classifier()
    x, mask = ops.convert_to_tensor([[1.0, 2.0, 3.0, 4.0]]), ops.convert_to_tensor([[1.0, 0.0, 1.0, 0.0]])
    print(BACKEND)
    print("plain", show(evaluate(model, x, mask)))
    value, (slope,) = train(model, x, mask)
    print("value", show(value), "gradient", show(slope))
    print("plain", show(evaluate(model, x, mask)))


if __name__ == "__main__":
    main()
