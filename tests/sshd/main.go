// An ssh server that serves git repositories for reading, for the tests of ssh URLs: golang.org/x/crypto/ssh, and
// git-upload-pack for the rest. It prints its address, then one line for each thing that a client does.
package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
)

// A list of values: the flag is given again for each.
type list []string

func (l *list) String() string         { return strings.Join(*l, ",") }
func (l *list) Set(value string) error { *l = append(*l, value); return nil }

type options struct {
	root, authorized, auth, exec      string
	hostKeys, kex, ciphers, macs, sig list
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "folder of the repositories")
	flag.StringVar(&o.authorized, "authorized", "", "file of keys that may read, as authorized_keys")
	flag.StringVar(&o.auth, "auth", "check", "what becomes of a key: check, hang, endless")
	flag.StringVar(&o.exec, "exec", "serve", "what becomes of a command: serve, refuse, hang, silent, missing, flood")
	flag.Var(&o.hostKeys, "host-key", "file of a private key; a file KEY-cert.pub beside it is its certificate")
	flag.Var(&o.kex, "kex", "key exchange")
	flag.Var(&o.ciphers, "cipher", "cipher")
	flag.Var(&o.macs, "mac", "MAC")
	flag.Var(&o.sig, "signature", "algorithm of signatures of clients")
	flag.Parse()
	if err := run(o); err != nil {
		log.Fatal(err)
	}
}

func run(o options) error {
	config, err := serverConfig(o)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	// The test ends the server by closing its input.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go serve(o, config, conn)
	}
}

func serverConfig(o options) (*ssh.ServerConfig, error) {
	authorized := map[string]bool{}
	if o.authorized != "" {
		text, err := os.ReadFile(o.authorized)
		if err != nil {
			return nil, err
		}
		for len(text) > 0 {
			key, _, _, rest, err := ssh.ParseAuthorizedKey(text)
			if err != nil {
				return nil, err
			}
			authorized[string(key.Marshal())] = true
			text = rest
		}
	}
	config := &ssh.ServerConfig{
		MaxAuthTries: -1,
		PublicKeyCallback: func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			fmt.Println("key", meta.User(), ssh.FingerprintSHA256(key))
			switch {
			case o.auth == "hang":
				select {}
			case !authorized[string(key.Marshal())]:
				return nil, errors.New("unknown key")
			case o.auth == "endless":
				// It is right, and more is wanted, again and again.
				return nil, endless()
			}
			return nil, nil
		},
		PublicKeyAuthAlgorithms: o.sig,
	}
	config.KeyExchanges, config.Ciphers, config.MACs = o.kex, o.ciphers, o.macs
	for _, file := range o.hostKeys {
		signer, err := hostKey(file)
		if err != nil {
			return nil, err
		}
		config.AddHostKey(signer)
	}
	return config, nil
}

func endless() error {
	return &ssh.PartialSuccessError{Next: ssh.ServerAuthCallbacks{
		PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, endless() },
	}}
}

func hostKey(file string) (ssh.Signer, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return nil, err
	}
	text, err = os.ReadFile(file + "-cert.pub")
	if os.IsNotExist(err) {
		return signer, nil
	} else if err != nil {
		return nil, err
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return nil, err
	}
	return ssh.NewCertSigner(key.(*ssh.Certificate), signer)
}

func serve(o options, config *ssh.ServerConfig, conn net.Conn) {
	defer conn.Close()
	server, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		fmt.Println("refused")
		return
	}
	fmt.Println("user", server.User(), "with", string(server.ClientVersion()))
	go ssh.DiscardRequests(requests)
	for opened := range channels {
		if opened.ChannelType() != "session" {
			_ = opened.Reject(ssh.UnknownChannelType, "only sessions")
			continue
		}
		channel, requests, err := opened.Accept()
		if err != nil {
			return
		}
		go session(o, channel, requests)
	}
}

func session(o options, channel ssh.Channel, requests <-chan *ssh.Request) {
	defer channel.Close()
	for request := range requests {
		if request.Type != "exec" || len(request.Payload) < 4 {
			fmt.Println("request", request.Type)
			_ = request.Reply(false, nil)
			continue
		}
		command := string(request.Payload[4:])
		fmt.Println("exec", command)
		if o.exec == "refuse" {
			_ = request.Reply(false, nil)
			continue
		}
		_ = request.Reply(true, nil)
		go ssh.DiscardRequests(requests)
		status := answer(o, command, channel)
		payload := make([]byte, 4)
		binary.BigEndian.PutUint32(payload, status)
		_, _ = channel.SendRequest("exit-status", false, payload)
		return
	}
}

func answer(o options, command string, channel ssh.Channel) uint32 {
	switch o.exec {
	case "hang":
		select {}
	case "silent":
		return 1
	case "flood":
		line := strings.Repeat(fmt.Sprintf("003e%s refs/heads/abcde\n", strings.Repeat("1", 40)), 500)
		for {
			if _, err := io.WriteString(channel, line); err != nil {
				return 1
			}
		}
	case "missing":
		fmt.Fprintln(channel.Stderr(), "ERROR: Repository not found.\nThe secret is s3cret")
		return 128
	}
	path, found := strings.CutPrefix(command, "git-upload-pack '")
	path, ended := strings.CutSuffix(path, "'")
	if !found || !ended {
		return 127
	}
	path = strings.NewReplacer(`'\''`, `'`, `'\!'`, `!`).Replace(path)
	git := exec.Command("git", "upload-pack", filepath.Join(o.root, filepath.Clean("/"+path)))
	git.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
	git.Stdout, git.Stderr = channel, channel.Stderr()
	// Not as its Stdin: it would be waited for after git has ended.
	input, err := git.StdinPipe()
	if err != nil || git.Start() != nil {
		return 126
	}
	go func() {
		_, _ = io.Copy(input, channel)
		_ = input.Close()
	}()
	if git.Wait() != nil {
		return 128
	}
	return 0
}
