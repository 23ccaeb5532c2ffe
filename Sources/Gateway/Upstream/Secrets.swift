import ByteStreams
import Conventions
import Reactor

/// Why a secret could not be had. Nothing of the secret is in it.
enum SecretError: Error, Equatable, CustomStringConvertible {
  case noVariable(String)
  case unreadable(String)
  case command(String, ChildProcessError)
  case empty
  case tooLong

  var description: String {
    switch self {
    case .noVariable(let name): "the credential cannot be read: the environment has no variable '\(name)'"
    case .unreadable(let path): "file '\(path)', from which a secret comes, cannot be read"
    case .command(let name, let error): "the credential's command '\(name)' \(error)"
    case .empty: "the credential is empty"
    case .tooLong: "a secret has more than \(CredentialUse.maximumBytes) bytes"
    }
  }
}

/// The secrets of one dial. Making it blocks.
struct Secrets: Sendable {
  private(set) var files: [String: [UInt8]] = [:]
  private(set) var credential: [UInt8]?

  init(files paths: [String], credential source: CredentialUse.Source?) throws(SecretError) {
    for path in paths { files[path] = try Self.content(of: path) }
    guard let source else { return }
    let secret =
      switch source {
      case .environment(let name): try Self.variable(name)
      case .file(let path): try Self.content(of: path)
      case .command(let command, let limit): try Self.output(of: command, within: limit)
      }
    guard !secret.isEmpty else { throw .empty }
    credential = secret
  }

  private static func variable(_ name: String) throws(SecretError) -> [UInt8] {
    guard let value = SystemFile.environment()[name] else { throw .noVariable(name) }
    return Array(value.utf8)
  }

  private static func content(of path: String) throws(SecretError) -> [UInt8] {
    guard let bytes = SystemFile.bytes(of: path, atMost: CredentialUse.maximumBytes + 1) else {
      throw .unreadable(path)
    }
    return try trimmed(bytes)
  }

  private static func output(of command: [String], within limit: TimeSpan) throws(SecretError) -> [UInt8] {
    let bytes: [UInt8]
    do throws(ChildProcessError) {
      bytes = try ChildProcess.output(of: command, within: limit, atMost: CredentialUse.maximumBytes + 1)
    } catch {
      throw .command(command[0], error)
    }
    return try trimmed(bytes)
  }

  /// The last line break is not part of a secret.
  private static func trimmed(_ bytes: [UInt8]) throws(SecretError) -> [UInt8] {
    guard bytes.count <= CredentialUse.maximumBytes else { throw .tooLong }
    var bytes = bytes
    if bytes.last == UInt8(ascii: "\n") { bytes.removeLast() }
    if bytes.last == UInt8(ascii: "\r") { bytes.removeLast() }
    return bytes
  }
}
