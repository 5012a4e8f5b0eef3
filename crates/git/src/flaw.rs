//! What is wrong with a server, in words of this crate.

use std::fmt;

use rustls::{AlertDescription, CertificateError, OtherError};

/// Why a TLS connection is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distrust {
    /// The certificate is past its end.
    Expired,
    /// The certificate is before its begin.
    NotYetValid,
    /// The certificate is for other hosts.
    OtherHost,
    /// The certificate names no host.
    NoName,
    /// No known CA has issued it.
    UnknownIssuer,
    /// The certificate is one of a CA, even if the CA is known.
    IsCa,
    /// The server wants a certificate of the client.
    ClientCertificate,
    /// Something else.
    Other,
}

/// What is wrong with an answer that began well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// It ended too early.
    Cut,
    /// It is not git's protocol.
    Protocol,
    /// It is not HTTP.
    NotHttp,
    /// It is not ssh.
    NotSsh,
    /// It breaks the rules of ssh.
    Ssh,
    /// It has no pack.
    NoPack,
    /// The pack cannot be read.
    Pack,
    /// The pack lacks objects.
    Incomplete,
}

/// What a server sends that is not git.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strange {
    /// A web page.
    WebPage,
    /// Files of a repository, without the program of git.
    Dumb,
    /// Something else.
    Other,
}

/// Why a TLS error means that the connection is not trusted; `None` if it is another error.
pub(super) fn distrust(error: &rustls::Error) -> Option<Distrust> {
    match error {
        rustls::Error::InvalidCertificate(error) => Some(match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Distrust::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Distrust::NotYetValid,
            CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => Distrust::NoName,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Distrust::OtherHost,
            // A CA that was replaced has the name of the new one, and another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Distrust::UnknownIssuer,
            // rustls has no name of its own for this.
            CertificateError::Other(OtherError(error))
                if matches!(error.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity)) =>
            {
                Distrust::IsCa
            }
            _ => Distrust::Other,
        }),
        rustls::Error::NoCertificatesPresented => Some(Distrust::Other),
        // A server says so if it got none, or one that it does not accept.
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError,
        ) => Some(Distrust::ClientCertificate),
        _ => None,
    }
}

// === impl Distrust ===

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Distrust::Expired => "has a certificate that has expired: renew it, and check the clock of this machine",
            Distrust::NotYetValid => {
                "has a certificate that is not valid yet: check the clocks of the git server and of this machine"
            }
            Distrust::OtherHost => "has a certificate for other hosts: use a host of the certificate in spec.url",
            Distrust::NoName => {
                "has a certificate without a host name: issue one with a subjectAltName, because the common name is \
                 not used"
            }
            Distrust::UnknownIssuer => {
                "has a certificate of an unknown CA: if the CA is private, add its certificate to the Secret as ca.crt"
            }
            Distrust::IsCa => {
                "has a certificate that is for a CA (CA:TRUE): issue one with basicConstraints CA:FALSE, and add its \
                 CA, or the certificate itself if it signs itself, to the Secret as ca.crt"
            }
            Distrust::ClientCertificate => {
                "requires a client certificate that it accepts: add one to the Secret as tls.crt and tls.key, and check \
                 whether its CA is the one that the git server wants"
            }
            Distrust::Other => "has a certificate that cannot be verified: check it with `openssl s_client`",
        })
    }
}

// === impl Flaw ===

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flaw::Cut => "ended too early: the git server or a proxy closed the connection; Tidegate tries again",
            Flaw::Protocol => "is not git's protocol: check what is between Tidegate and the git server",
            Flaw::NotHttp => "is not HTTP: check the scheme and the port of the URL",
            Flaw::NotSsh => "is not ssh: check the host and the port of the URL",
            Flaw::Ssh => "breaks the ssh protocol: check what is between Tidegate and the git server",
            Flaw::NoPack => "contains no objects: check the repository on the git server with `git fsck`",
            Flaw::Pack => "contains a damaged pack: check the repository on the git server with `git fsck`",
            Flaw::Incomplete => "lacks objects: check the repository on the git server with `git fsck`",
        })
    }
}

// === impl Strange ===

impl fmt::Display for Strange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Strange::WebPage => {
                "sent a web page instead of git: check the URL; a private repository may show a sign-in page, which \
                 needs a token instead"
            }
            Strange::Dumb => "serves files only (dumb HTTP): it must run git's smart HTTP backend",
            Strange::Other => "is not a git server (smart HTTP): check the URL",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    #[test]
    fn each_cause_of_distrust_is_told_apart() {
        let time = UnixTime::now();
        let name = |presented: &[&str]| CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("git.example.com").unwrap(),
            presented: presented.iter().map(|&name| name.to_owned()).collect(),
        };
        let other = |error| CertificateError::Other(OtherError(Arc::new(error)));
        let certificate = |error| distrust(&rustls::Error::InvalidCertificate(error));
        for (error, expected) in [
            (CertificateError::ExpiredContext { time, not_after: time }, Distrust::Expired),
            (CertificateError::NotValidYetContext { time, not_before: time }, Distrust::NotYetValid),
            (name(&["DnsName(\"other\")"]), Distrust::OtherHost),
            (name(&[]), Distrust::NoName),
            (CertificateError::UnknownIssuer, Distrust::UnknownIssuer),
            (CertificateError::BadSignature, Distrust::UnknownIssuer),
            (other(webpki::Error::CaUsedAsEndEntity), Distrust::IsCa),
            (other(webpki::Error::EndEntityUsedAsCa), Distrust::Other),
            (CertificateError::Revoked, Distrust::Other),
        ] {
            assert_eq!(certificate(error), Some(expected));
        }
        let alert = |alert| distrust(&rustls::Error::AlertReceived(alert));
        assert_eq!(alert(AlertDescription::CertificateRequired), Some(Distrust::ClientCertificate));
        assert_eq!(alert(AlertDescription::HandshakeFailure), None);
    }
}
