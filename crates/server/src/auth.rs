//! Who may use the server: files of `user:password` lines, for text connections (`-Y`) and for SASL (`-S`).
//! Files are read at start-up and on reload only. Comparing takes the same time whatever is wrong.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use crate::settings::Settings;

/// Users in a file, memcached's limit.
const USERS_MAX: usize = 8;
/// Bytes of a user or password in a file, memcached's limit.
const TOKEN_BYTES_MAX: usize = 256;

/// Who may use the connections of a listener, decided when they connect.
#[derive(Debug, Clone)]
pub(crate) enum Access {
    /// Everyone.
    Open,
    /// Users who authenticate by text (`-Y`); binary is not spoken.
    Text(Arc<Credentials>),
    /// Users who authenticate by SASL (`-S`); text is not spoken.
    Sasl(Arc<Credentials>),
}

impl Access {
    /// As `settings` say.
    pub(crate) fn read(settings: &Settings) -> Result<Access, CredentialsError> {
        Ok(match (&settings.auth_file, &settings.sasl_file) {
            (Some(path), _) => Access::Text(Arc::new(Credentials::read(path)?)),
            (None, Some(path)) => Access::Sasl(Arc::new(Credentials::read(path)?)),
            (None, None) => Access::Open,
        })
    }

    /// What follows on this when `newer` was read. The users of the same file stay the same object, so that connections
    /// that are open already follow too.
    pub(crate) fn followed_by(&self, newer: Access) -> Access {
        match (self, newer) {
            (Access::Text(own), Access::Text(newer)) if own.path == newer.path => Access::Text(own.updated(&newer)),
            (Access::Sasl(own), Access::Sasl(newer)) if own.path == newer.path => Access::Sasl(own.updated(&newer)),
            (_, newer) => newer,
        }
    }

    /// Whether a client has to say who it is first.
    pub(crate) fn is_locked(&self) -> bool {
        !matches!(self, Access::Open)
    }
}

/// Users with their passwords.
type Users = Vec<(Vec<u8>, Vec<u8>)>;

/// The users in a file. A reload reads the file again, for connections that are open as well: a password that was taken
/// away is good for nobody.
pub(crate) struct Credentials {
    path: PathBuf,
    users: RwLock<Users>,
}

impl Credentials {
    /// Reads a file of `user:password` lines.
    pub(crate) fn read(path: &Path) -> Result<Credentials, CredentialsError> {
        let error = |line, what: &str| CredentialsError { path: path.to_path_buf(), line, what: what.to_owned() };
        let text = std::fs::read(path).map_err(|source| error(0, &source.to_string()))?;
        let mut users = Vec::new();
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let colon = line.iter().position(|&byte| byte == b':');
            let Some(colon) = colon else { return Err(error(index + 1, "a line is user:password")) };
            let (user, password) = (&line[..colon], &line[colon + 1..]);
            if user.len() > TOKEN_BYTES_MAX || password.len() > TOKEN_BYTES_MAX {
                return Err(error(index + 1, "a user or password is at most 256 bytes"));
            }
            if users.len() == USERS_MAX {
                return Err(error(index + 1, "a file holds at most 8 users"));
            }
            users.push((user.to_vec(), password.to_vec()));
        }
        if users.is_empty() {
            return Err(error(0, "the file names no user"));
        }
        Ok(Credentials { path: path.to_path_buf(), users: RwLock::new(users) })
    }

    /// The same, with the users of `newer`.
    fn updated(self: &Arc<Self>, newer: &Credentials) -> Arc<Credentials> {
        let users = newer.users.read().unwrap_or_else(PoisonError::into_inner).clone();
        *self.users.write().unwrap_or_else(PoisonError::into_inner) = users;
        Arc::clone(self)
    }

    /// Whether `user` has `password`. Every user is compared whole, so that the time tells nothing.
    pub(crate) fn check(&self, user: &[u8], password: &[u8]) -> bool {
        let mut found = false;
        for (known, secret) in self.users.read().unwrap_or_else(PoisonError::into_inner).iter() {
            // `&`, not `&&`: both are compared whatever the first says.
            found |= same(known, user) & same(secret, password);
        }
        found
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials of {}", self.path.display())
    }
}

/// Whether `secret` and `given` are equal, in a time that depends on the length of `given` alone.
fn same(secret: &[u8], given: &[u8]) -> bool {
    let mut differing = u8::from(secret.len() != given.len());
    for (index, &byte) in given.iter().enumerate() {
        let other = if secret.is_empty() { !byte } else { secret[index % secret.len()] };
        differing |= byte ^ other;
    }
    std::hint::black_box(differing) == 0
}

/// A credentials file that cannot be used.
#[derive(Debug)]
pub struct CredentialsError {
    path: PathBuf,
    /// 0 when the whole file is to blame.
    line: usize,
    what: String,
}

impl fmt::Display for CredentialsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "credentials file {}", self.path.display())?;
        if self.line > 0 {
            write!(f, ", line {}", self.line)?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for CredentialsError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Credentials, String> {
        // One file per test thread and text.
        let name = format!("nuthatch-auth-{}-{:?}", std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).expect("a scratch file");
        let credentials = Credentials::read(&path).map_err(|error| error.to_string());
        std::fs::remove_file(&path).expect("the scratch file");
        credentials
    }

    #[test]
    fn only_the_right_password_of_the_right_user_passes() {
        let credentials = read("anna:secret\nbob:a:b\r\n\nempty:\n").expect("a good file");
        assert!(credentials.check(b"anna", b"secret"));
        assert!(credentials.check(b"bob", b"a:b"), "a password may hold a colon");
        assert!(credentials.check(b"empty", b""));
        for (user, password) in [("anna", "a:b"), ("anna", "secre"), ("anna", "secretsecret"), ("", ""), ("empty", "x")]
        {
            assert!(!credentials.check(user.as_bytes(), password.as_bytes()), "{user} {password}");
        }
    }

    #[test]
    fn a_bad_file_is_refused_in_a_sentence_that_names_the_line() {
        assert!(read("anna:1\nbob\n").expect_err("no colon").ends_with(", line 2: a line is user:password"));
        assert!(read("").expect_err("nobody").ends_with(": the file names no user"));
        let long = format!("u:{}\n", "p".repeat(257));
        assert!(read(&long).expect_err("too long").contains("at most 256 bytes"));
        assert!(read(&"u:p\n".repeat(9)).expect_err("too many").contains("line 9: a file holds at most 8 users"));
        let missing = Credentials::read(Path::new("/nonexistent/users")).expect_err("no file").to_string();
        assert!(missing.starts_with("credentials file /nonexistent/users: "), "{missing}");
    }
}
