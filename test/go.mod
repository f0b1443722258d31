module github.com/cabine-pix/cabine/test

go 1.26.0

require github.com/cabine-pix/cabine/libs v0.0.0

require (
	github.com/stretchr/testify v1.12.1 // indirect
	go.uber.org/goleak v1.3.0 // indirect
)

replace github.com/cabine-pix/cabine/libs => ../libs
