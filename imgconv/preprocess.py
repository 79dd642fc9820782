"""Pictures as a program uses them on the host: read, prepared for a model, made of its outputs, written.

    array = to_array(read_picture("a.jpg"), Preparation("crop", scale=1 / 255), (224, 224))

`Model.preprocess` makes the same arrays on the device.
"""

from imgconv.pictures.host import (
    guess_range, input_array, read_picture, resized, save_picture, to_array, to_picture, with_color,
)
from imgconv.pictures.preparation import FILTERS, FORMATS, ORDERS, RESIZES, Preparation, letterbox_scale

__all__ = [
    "FILTERS", "FORMATS", "ORDERS", "RESIZES", "Preparation", "guess_range", "input_array", "letterbox_scale",
    "read_picture", "resized", "save_picture", "to_array", "to_picture", "with_color",
]
