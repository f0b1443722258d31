module github.com/cabine-pix/cabine/plugins

go 1.26.0

require github.com/cabine-pix/cabine/libs v0.0.0

replace github.com/cabine-pix/cabine/libs => ../libs
