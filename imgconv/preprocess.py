"""Prepares pictures on the host: reads a file, converts it to a model's input, and writes an output as a picture.

    picture = read_picture("a.jpg")                                 # a PIL image, RGB
    how = Preparation("crop", scale=1 / 255)                        # InputError for an unknown setting
    array = to_array(picture, how, (224, 224))                      # float32 (1, 3, 224, 224), 0 to 1
    save_picture(to_picture(array[0]), "out.png")                   # InputError if it cannot be written
    letterbox_scale((1920, 1080), (416, 416))                       # 0.2167: model pixels per pixel of the picture

`Model.preprocess` makes the same arrays on the device.
"""

from imgconv.pictures.host import (
    guess_range, input_array, read_picture, resized, save_picture, to_array, to_picture, with_color,
)
from imgconv.preprocessing.preparation import FILTERS, FORMATS, ORDERS, RESIZES, Preparation, letterbox_scale

__all__ = [
    "FILTERS", "FORMATS", "ORDERS", "RESIZES", "Preparation", "guess_range", "input_array", "letterbox_scale",
    "read_picture", "resized", "save_picture", "to_array", "to_picture", "with_color",
]
