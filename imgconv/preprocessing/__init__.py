"""The device's way from a picture to a model's input. No picture file is read in here.

preparation.py   settings of a preparation, and the weights of its filters; the host follows them too
stage.py         graph nodes before the model's own, if all pictures have one size
pixels.py        numbers next to the pixels, for pictures of any size: what runtime/picture.cl reads
video_frame.py   a camera's frame in memory of any layout, and the kernel that reads it, frame.cl
"""
