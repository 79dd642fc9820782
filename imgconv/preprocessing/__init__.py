"""Prepares pictures on the device: from the bytes of a picture to a model's input. No picture file is read here.

preparation.py   settings of a preparation, and the weights of its filters, which the host uses too
stage.py         graph nodes before the model's own, for pictures of one size
pixels.py        parameters that are uploaded with the pixels, for pictures of any size: runtime/picture.cl reads them
video_frame.py   a camera frame in any memory layout, and the kernel that reads it, frame.cl
"""
