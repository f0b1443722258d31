module github.com/cabine-pix/cabine/tools

go 1.26.0

require (
	github.com/bsm/redislock v0.9.4 // indirect
	github.com/cabine-pix/cabine/libs v0.0.0
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-redsync/redsync/v4 v4.13.0 // indirect
	github.com/redis/go-redis/v9 v9.23.0 // indirect
	github.com/redis/rueidis v1.0.67 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)

replace github.com/cabine-pix/cabine/libs => ../libs
