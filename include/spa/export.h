/* Marks what the shared library exports; everything else in it is hidden. */
#ifndef SPA_EXPORT_H_
#define SPA_EXPORT_H_

#define SPA_API __attribute__((visibility("default")))

#endif /* SPA_EXPORT_H_ */
