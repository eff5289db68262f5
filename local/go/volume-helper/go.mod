module spectrum/local/volume-helper

go 1.26.0
