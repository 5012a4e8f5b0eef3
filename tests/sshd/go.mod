// The ssh server of the tests of ssh URLs: another implementation of the protocol than Tidegate's.
module tidegate.dev/tests/sshd

go 1.26.0

require golang.org/x/crypto v0.57.0

require golang.org/x/sys v0.48.0 // indirect
