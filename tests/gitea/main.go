// Gitea, for the test of its webhooks: the real sender of pushes. Its templates and texts are files beside its module,
// so `gitea assets FOLDER` copies them there: the program may outlive the cache of modules.
package main

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"

	"code.gitea.io/gitea/cmd"
	"code.gitea.io/gitea/modules/log"
	"code.gitea.io/gitea/modules/setting"
	"modernc.org/sqlite"
)

// SQLite without C, under the name that Gitea expects.
type sqlite3 struct{ sqlite.Driver }

func (d *sqlite3) Open(name string) (driver.Conn, error) {
	// Connections that share a cache do not wait for each other.
	name = strings.Replace(name, "cache=shared&", "", 1)
	return d.Driver.Open(name + "&_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)")
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "assets" {
		if err := copyAssets(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	sql.Register("sqlite3", &sqlite3{})
	setting.AppVer, setting.EnableSQLite3 = "1.26.0", true
	app := cmd.NewMainApp(cmd.AppVersion{Version: setting.AppVer})
	err := cmd.RunMainApp(app, os.Args...)
	log.GetManager().Close()
	if err != nil {
		os.Exit(1)
	}
}

func copyAssets(folder string) error {
	entry := reflect.ValueOf(cmd.NewMainApp).Pointer()
	file, _ := runtime.FuncForPC(entry).FileLine(entry)
	module := filepath.Dir(filepath.Dir(file))
	for _, name := range []string{"options", "templates"} {
		if err := os.CopyFS(filepath.Join(folder, name), os.DirFS(filepath.Join(module, name))); err != nil {
			return err
		}
	}
	return nil
}
