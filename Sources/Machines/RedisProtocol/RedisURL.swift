import ByteStreams
import HTTPCodec

/// The URL of a Redis server: `redis://user:password@host:port/database`, or `rediss://` for TLS.
///
/// Its description has no credentials.
package struct RedisURL: Hashable, Sendable {
  package let isSecure: Bool
  /// Name or address, without brackets.
  package let host: String
  package let port: UInt16
  package let database: Int
  package var credentials: RedisCredentials

  /// The largest accepted number of a database: Redis uses 32 bits.
  private static var lastDatabase: Int { Int(Int32.max) }

  /// Parses a URL. The error names the fault, and does not repeat parts that may be secret.
  ///
  /// - Parameter defaultPort: 6379 for a server, 26379 for a Sentinel.
  package init(_ text: String, defaultPort: UInt16 = 6379) throws(RedisURLError) {
    guard let url = URLParts(text), let isSecure = url.isSecure(("redis", "rediss")) else { throw .scheme }
    guard !url.path.contains(where: { $0 == "?" || $0 == "#" }) else { throw .parameters }
    do throws(URLAuthorityError) {
      let authority = try url.parseAuthority()
      host = authority.host
      port = authority.port ?? defaultPort
      // An empty part counts as absent.
      credentials = RedisCredentials()
      if let (user, password) = try authority.credentials() {
        if !user.isEmpty { credentials.user = user }
        if !password.isEmpty { credentials.password = password }
      }
    } catch {
      throw .authority(error)
    }
    self.isSecure = isSecure
    let path = url.path.dropFirst()
    guard let number = path.isEmpty ? 0 : Array(path.utf8).span.decimalValue(), number <= Self.lastDatabase else {
      throw .database
    }
    database = number
  }
}

extension RedisURL: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
  /// The URL without its credentials.
  package var description: String {
    (isSecure ? "rediss://" : "redis://") + URLAuthority.bracketed(host) + ":\(port)/\(database)"
  }

  package var debugDescription: String { description }

  package var customMirror: Mirror { Mirror(self, children: []) }
}

/// A user name and a password. Neither is part of any description.
package struct RedisCredentials: Hashable, Sendable {
  /// nil for the user `default`.
  package var user: String?
  /// nil if no AUTH is sent.
  package var password: String?

  package init(user: String? = nil, password: String? = nil) {
    self.user = user
    self.password = password
  }
}

extension RedisCredentials: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
  package var description: String { password == nil ? "no password" : "a password" }
  package var debugDescription: String { description }
  package var customMirror: Mirror { Mirror(self, children: []) }
}

/// Why a URL is invalid.
package enum RedisURLError: Error, Hashable, Sendable, CustomStringConvertible {
  case scheme
  case parameters
  case database
  case authority(URLAuthorityError)

  package var description: String {
    switch self {
    case .scheme: "it does not begin with redis:// or rediss://"
    case .parameters: "it has parameters or a fragment: it must end with the number of the database"
    case .database: "its path is not the number of a database: use /0, or no path"
    case .authority(let error): error.description
    }
  }
}
