"""What is wrong with an image, a collection or a plate."""
