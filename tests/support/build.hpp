// tests/support/build.hpp: properties of the build, for tests that are too slow or impossible in some builds.
#pragma once

namespace drover::test {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DROVER_IS_SANITIZED 1
#endif
#if __has_feature(address_sanitizer)
#define DROVER_IS_ADDRESS_SANITIZED 1
#endif
#if __has_feature(thread_sanitizer)
#define DROVER_IS_THREAD_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(DROVER_IS_SANITIZED)
/// Whether this is a sanitizer build, which is several times slower and adds instructions to every step.
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(DROVER_IS_ADDRESS_SANITIZED)
/// Whether it is the address sanitizer together with the undefined behaviour one, which opens descriptors.
inline constexpr bool kIsAddressSanitized = true;
#else
inline constexpr bool kIsAddressSanitized = false;
#endif
#if defined(__SANITIZE_THREAD__) || defined(DROVER_IS_THREAD_SANITIZED)
/// Whether it is the thread sanitizer, which delays signals.
inline constexpr bool kIsThreadSanitized = true;
#else
inline constexpr bool kIsThreadSanitized = false;
#endif

}  // namespace drover::test
